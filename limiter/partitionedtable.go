package limiter

import (
	"math/bits"
	"sync/atomic"
)

// A table finds entries by key: chains of entries under a number of heads that
// grows and shrinks by one chain at a time, so that no insertion takes long,
// however many entries there are. There are four heads for three entries. This is
// linear hashing: Litwin, "Linear hashing: a new tool for file and table
// addressing", VLDB 1980. The zero table is empty.
//
// All but find and hash need the shard's lock. find does without, and then may
// miss an entry while others are put in or taken out, and may return one that has
// just been taken out; it never returns one of another key.
type table[K comparable] struct {
	heads atomic.Pointer[heads[K]] // nil: there are no entries
	n     int                      // entries
}

// heads are replaced when there is no room for more, or far too much.
type heads[K comparable] struct {
	slots []atomic.Pointer[entry[K]]
	n     atomic.Int64 // how many of the slots are heads; the others are nil
}

func (h *heads[K]) len() int { return int(h.n.Load()) }

const leastHeads = 4

// round is the number of heads at which this round of splitting began: the power
// of two that there are at least.
func round(heads int) int { return 1 << (bits.Len(uint(heads)) - 1) }

// at is the place of the chain for that hash among so many heads. Chains before the
// next one to be split have been split already, and go by one more bit.
func at(hash uint32, heads int) int {
	r := round(heads)
	i := int(hash & uint32(2*r-1))
	if i >= heads {
		i -= r
	}
	return i
}

// chain is where the chain for that hash begins.
func (h *heads[K]) chain(hash uint32) *atomic.Pointer[entry[K]] { return &h.slots[at(hash, h.len())] }

func (t *table[K]) find(hash uint64, key K) *entry[K] {
	h := t.heads.Load()
	if h == nil {
		return nil
	}
	for e := h.chain(uint32(hash)).Load(); e != nil; e = e.next.Load() {
		if e.hash == uint32(hash) && e.key == key {
			return e
		}
	}
	return nil
}

// has reports whether e is there.
func (t *table[K]) has(e *entry[K]) bool {
	h := t.heads.Load()
	if h == nil {
		return false
	}
	there := h.chain(e.hash).Load()
	for there != nil && there != e {
		there = there.next.Load()
	}
	return there == e
}

// insert adds an entry whose key is not there.
func (t *table[K]) insert(e *entry[K]) {
	h := t.heads.Load()
	if h == nil {
		h = newHeads[K](nil, leastHeads)
		h.n.Store(leastHeads)
		t.heads.Store(h)
	}
	put(h.chain(e.hash), e)
	t.n++
	if 4*t.n > 3*h.len() {
		t.split()
	}
}

// put sets e before a chain.
func put[K comparable](chain *atomic.Pointer[entry[K]], e *entry[K]) {
	if first := chain.Load(); first != e.next.Load() {
		e.next.Store(first)
	}
	chain.Store(e)
}

// newHeads returns the same heads with room for so many.
func newHeads[K comparable](old *heads[K], room int) *heads[K] {
	h := &heads[K]{slots: make([]atomic.Pointer[entry[K]], room)}
	if old != nil {
		n := old.len()
		copy(h.slots, old.slots[:n]) // nobody writes to these, or reads the new ones
		h.n.Store(int64(n))
	}
	return h
}

// split divides one chain in two.
func (t *table[K]) split() {
	h := t.heads.Load()
	n := h.len()
	if n == len(h.slots) {
		h = newHeads(h, n+max(n/4, min(n, 64)))
		t.heads.Store(h)
	}
	r := round(n)
	before, to := &h.slots[n-r], &h.slots[n]
	h.n.Store(int64(n + 1))
	for e := before.Load(); e != nil; {
		next := e.next.Load()
		if e.hash&uint32(r) != 0 {
			before.Store(next)
			put(to, e)
		} else {
			before = &e.next
		}
		e = next
	}
}

// remove takes an entry out that is there, and leaves the heads as they are.
func (t *table[K]) remove(e *entry[K]) {
	before := t.heads.Load().chain(e.hash)
	for before.Load() != e {
		before = &before.Load().next
	}
	before.Store(e.next.Load())
	t.n--
}

// shrink merges up to steps chains while there are many heads for few entries. It
// returns false when it is done.
func (t *table[K]) shrink(steps int) bool {
	for ; steps > 0; steps-- {
		if t.n == 0 {
			t.heads.Store(nil)
			return false
		}
		h := t.heads.Load()
		if n := h.len(); n <= leastHeads || t.n > n/2 {
			if len(h.slots) > 2*n {
				t.heads.Store(newHeads(h, n))
			}
			return false
		}
		h.merge()
	}
	return true
}

// merge undoes the last split.
func (h *heads[K]) merge() {
	last := h.len() - 1
	end := &h.slots[last-round(last)]
	for end.Load() != nil {
		end = &end.Load().next
	}
	end.Store(h.slots[last].Load())
	h.n.Store(int64(last))
	h.slots[last].Store(nil)
}

// clear returns all entries in one chain, and forgets them.
func (t *table[K]) clear() *entry[K] {
	var all atomic.Pointer[entry[K]]
	if h := t.heads.Load(); h != nil {
		for i := range h.slots {
			for e := h.slots[i].Load(); e != nil; {
				next := e.next.Load()
				put(&all, e)
				e = next
			}
		}
	}
	t.heads.Store(nil)
	t.n = 0
	return all.Load()
}
