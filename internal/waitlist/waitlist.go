// Package waitlist has the callers that wait in a queue, in the order in which they came: of a limiter, and of a key of a
// store.
package waitlist

import (
	"iter"

	"github.com/weir-go/weir/rate"
)

// A Waiter is a caller that waits. The lock of its List guards it until Ready is closed. Then it belongs to the caller.
type Waiter[V any] struct {
	Permits int // that it waits for; 0: it waits until one is available, and takes none
	Value   V   // what its queue keeps of it, such as the answer
	Ready   chan struct{}

	listed       bool
	older, newer *Waiter[V]
}

// Listed reports whether w is in a List.
func (w *Waiter[V]) Listed() bool { return w.listed }

// Weight returns how much of a QueueLimit a request for n permits takes.
func Weight(n int) int64 { return int64(max(n, 1)) }

// A List has waiters. The zero value is empty.
type List[V any] struct {
	oldest, newest *Waiter[V]
	permits        int64 // the sum of the waiters' permits
	weight         int64 // the sum of their weights
	length         int
	zeros          int // how many wait for 0 permits
}

// Empty reports whether there are no waiters.
func (l *List[V]) Empty() bool { return l.oldest == nil }

// Permits returns the sum of the permits waited for.
func (l *List[V]) Permits() int64 { return l.permits }

// Zeros returns how many waiters wait for 0 permits.
func (l *List[V]) Zeros() int { return l.zeros }

// First returns the waiter that is served first, or nil.
func (l *List[V]) First(order rate.QueueOrder) *Waiter[V] {
	if order == rate.NewestFirst {
		return l.newest
	}
	return l.oldest
}

// All yields the waiters in the order in which they are served. The loop may remove the waiter that it has got.
func (l *List[V]) All(order rate.QueueOrder) iter.Seq[*Waiter[V]] {
	return func(yield func(*Waiter[V]) bool) {
		for w := l.First(order); w != nil; {
			next := w.newer
			if order == rate.NewestFirst {
				next = w.older
			}
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

// MakeRoom reports whether there is room for a request for n permits if the waiters' weights may be limit together. If the
// newest are served first, the oldest leave to make room, and MakeRoom returns them.
func (l *List[V]) MakeRoom(n, limit int, order rate.QueueOrder) (evicted []*Waiter[V], ok bool) {
	room := int64(limit) - Weight(n) // for the others; the limit can have been lowered below what there is
	if l.weight > room && (order == rate.OldestFirst || room < 0) {
		return nil, false
	}
	for l.weight > room {
		evicted = append(evicted, l.oldest)
		l.Remove(l.oldest)
	}
	return evicted, true
}

// Push adds w as the newest.
func (l *List[V]) Push(w *Waiter[V]) {
	w.listed, w.older = true, l.newest
	if l.newest != nil {
		l.newest.newer = w
	} else {
		l.oldest = w
	}
	l.newest = w
	l.count(w, 1)
}

// Remove takes w out, wherever it is. It reports whether w was in the list.
func (l *List[V]) Remove(w *Waiter[V]) bool {
	if !w.listed {
		return false
	}
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		l.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		l.newest = w.older
	}
	w.older, w.newer, w.listed = nil, nil, false
	l.count(w, -1)
	return true
}

// count adds a waiter to the sums with sign 1, and takes it out of them with sign -1.
func (l *List[V]) count(w *Waiter[V], sign int64) {
	l.length += int(sign)
	l.permits += sign * int64(w.Permits)
	l.weight += sign * Weight(w.Permits)
	if w.Permits == 0 {
		l.zeros += int(sign)
	}
}
