package limiter

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// An entry is one partition. Its key and limiter never change; pins and used may
// be changed without the shard's lock, but a pin is only set with it.
type entry[K comparable] struct {
	key     K
	limiter Limiter
	next    *entry[K]
	pins    atomic.Int32  // callers who are using it; it is not forgotten meanwhile
	used    atomic.Uint32 // the turn of its last use, where that matters
}

// A table finds entries by key: chains of entries under a number of heads that
// grows and shrinks by one chain at a time, so that no insertion takes long,
// however many entries there are. There are four heads for three entries. This is
// linear hashing: Litwin, "Linear hashing: a new tool for file and table
// addressing", VLDB 1980. The zero table is empty, once it has a seed; it is
// guarded by its shard's lock.
type table[K comparable] struct {
	seed  maphash.Seed
	heads []*entry[K]
	n     int // entries
}

const leastHeads = 4

// round is the number of heads at which this round of splitting began: the power
// of two that there are at least.
func round(heads int) int { return 1 << (bits.Len(uint(heads)) - 1) }

// at is the place of the chain for that hash. Chains before the next one to be
// split have been split already, and go by one more bit.
func (t *table[K]) at(hash uint64) int {
	r := round(len(t.heads))
	i := int(hash) & (2*r - 1)
	if i >= len(t.heads) {
		i -= r
	}
	return i
}

func (t *table[K]) hash(key K) uint64 { return maphash.Comparable(t.seed, key) }

func (t *table[K]) find(hash uint64, key K) *entry[K] {
	if t.n == 0 {
		return nil
	}
	for e := t.heads[t.at(hash)]; e != nil; e = e.next {
		if e.key == key {
			return e
		}
	}
	return nil
}

// insert adds an entry whose key is not there.
func (t *table[K]) insert(hash uint64, e *entry[K]) {
	if t.heads == nil {
		t.heads = make([]*entry[K], leastHeads)
	}
	i := t.at(hash)
	e.next = t.heads[i]
	t.heads[i] = e
	t.n++
	if 4*t.n > 3*len(t.heads) {
		t.split()
	}
}

// split divides one chain in two.
func (t *table[K]) split() {
	r := round(len(t.heads))
	from, to := len(t.heads)-r, len(t.heads)
	chain := t.heads[from]
	t.heads[from] = nil
	t.heads = append(t.heads, nil)
	for chain != nil {
		e := chain
		chain = e.next
		i := from
		if int(t.hash(e.key))&r != 0 {
			i = to
		}
		e.next = t.heads[i]
		t.heads[i] = e
	}
}

// remove takes an entry out that is there, and leaves the heads as they are.
func (t *table[K]) remove(hash uint64, e *entry[K]) {
	at := &t.heads[t.at(hash)]
	for *at != e {
		at = &(*at).next
	}
	*at = e.next
	e.next = nil
	t.n--
}

// shrink merges up to steps chains while there are many heads for few entries. It
// returns false when it is done.
func (t *table[K]) shrink(steps int) bool {
	for ; steps > 0; steps-- {
		if t.n == 0 {
			t.heads = nil
			return false
		}
		if len(t.heads) <= leastHeads || t.n > len(t.heads)/2 {
			if cap(t.heads) > 2*len(t.heads) {
				t.heads = append([]*entry[K](nil), t.heads...)
			}
			return false
		}
		t.merge()
	}
	return true
}

// merge undoes the last split.
func (t *table[K]) merge() {
	last := len(t.heads) - 1
	end := &t.heads[last-round(last)]
	for *end != nil {
		end = &(*end).next
	}
	*end = t.heads[last]
	t.heads[last] = nil
	t.heads = t.heads[:last]
}

// clear returns all entries in one chain, and forgets them.
func (t *table[K]) clear() *entry[K] {
	var all *entry[K]
	for _, e := range t.heads {
		for e != nil {
			next := e.next
			e.next = all
			all = e
			e = next
		}
	}
	t.heads, t.n = nil, 0
	return all
}
