package limiter

import (
	"math/bits"
	"sync/atomic"
)

// A table finds entries by key: it has chains of entries, each with a head. It keeps about four heads for three
// entries, and adds and removes one chain at a time, so that no insertion takes long. This is linear hashing: Litwin,
// "Linear hashing: a new tool for file and table addressing", VLDB 1980. The zero table is empty.
//
// All methods but find and hash need the shard's lock. find takes no lock. It can miss an entry while others are put in
// or taken out, and can return one that was just taken out, but never one of another key.
type table[K comparable] struct {
	heads atomic.Pointer[heads[K]] // nil: there are no entries
	n     int                      // entries
}

// heads are replaced when they have no room for another chain, or far too much room.
type heads[K comparable] struct {
	slots []atomic.Pointer[entry[K]]
	n     atomic.Int64 // how many of the slots are heads; the others are nil
}

func (h *heads[K]) len() int { return int(h.n.Load()) }

const leastHeads = 4

// roundStart returns the number of heads at which this round of splits began: the largest power of two up to heads.
func roundStart(heads int) int { return 1 << (bits.Len(uint(heads)) - 1) }

// chainAt returns the index of the chain for a hash in a table of that many heads. A chain that was split in this round
// uses one more bit of the hash than a chain that was not.
func chainAt(hash uint32, heads int) int {
	r := roundStart(heads)
	i := int(hash & uint32(2*r-1))
	if i >= heads {
		i -= r
	}
	return i
}

// chain returns where the chain for that hash begins.
func (h *heads[K]) chain(hash uint32) *atomic.Pointer[entry[K]] {
	return &h.slots[chainAt(hash, h.len())]
}

// find returns the entry of a key, or nil. hash is that of the key.
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

// chains returns the number of chains. Without the lock, it can be an old one.
func (t *table[K]) chains() int {
	if h := t.heads.Load(); h != nil {
		return h.len()
	}
	return 0
}

// each calls f with the entries of the chains from index from to index to-1. f must not change the table.
func (t *table[K]) each(from, to int, f func(*entry[K])) {
	for i := from; i < to; i++ {
		for e := t.heads.Load().slots[i].Load(); e != nil; e = e.next.Load() {
			f(e)
		}
	}
}

// has reports whether e is in the table.
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

// insert adds an entry whose key is not in the table.
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

// put makes e the first entry of a chain.
func put[K comparable](chain *atomic.Pointer[entry[K]], e *entry[K]) {
	if first := chain.Load(); first != e.next.Load() {
		e.next.Store(first)
	}
	chain.Store(e)
}

// newHeads returns heads with that capacity and the chains of old. If old is nil, it has no chains.
func newHeads[K comparable](old *heads[K], capacity int) *heads[K] {
	h := &heads[K]{slots: make([]atomic.Pointer[entry[K]], capacity)}
	if old != nil {
		n := old.len()
		copy(h.slots, old.slots[:n]) // no atomics: the shard's lock keeps writers out, and h has no readers yet
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
	r := roundStart(n)
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

// remove takes out an entry that is in the table, and leaves the heads as they are.
func (t *table[K]) remove(e *entry[K]) {
	before := t.heads.Load().chain(e.hash)
	for before.Load() != e {
		before = &before.Load().next
	}
	before.Store(e.next.Load())
	t.n--
}

// shrink merges up to steps chains while there are too many heads. It returns false when it is done.
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
	end := &h.slots[last-roundStart(last)]
	for end.Load() != nil {
		end = &end.Load().next
	}
	end.Store(h.slots[last].Load())
	h.n.Store(int64(last))
	h.slots[last].Store(nil)
}

// clear takes out all entries, and returns them in one chain.
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
