// Package waitlist has the callers that wait in a queue: of a limiter, and of a key of a store.
package waitlist

import (
	"iter"
	"slices"

	"github.com/weir-go/weir/rate"
)

// A Waiter is a caller that waits. The lock of its List guards it until Ready is closed. Then it belongs to the caller.
type Waiter[V any] struct {
	Permits int // that it waits for; 0: it waits until one is available, and takes none
	Tenant  rate.Tenant
	Value   V // what its queue keeps of it, such as the answer
	Ready   chan struct{}

	listed       bool
	older, newer *Waiter[V]
}

// Listed reports whether w is in a List.
func (w *Waiter[V]) Listed() bool { return w.listed }

// Weight returns how much of a QueueLimit a request for n permits takes.
func Weight(n int) int64 { return int64(max(n, 1)) }

// A line has waiters in the order in which they came.
type line[V any] struct {
	oldest, newest *Waiter[V]
	weight         int64 // the sum of the waiters' weights
}

func (l *line[V]) push(w *Waiter[V]) {
	w.listed, w.older = true, l.newest
	if l.newest != nil {
		l.newest.newer = w
	} else {
		l.oldest = w
	}
	l.newest = w
	l.weight += Weight(w.Permits)
}

func (l *line[V]) remove(w *Waiter[V]) {
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
	l.weight -= Weight(w.Permits)
}

// A List has waiters. The zero value is empty, has room for none, and serves the oldest first.
type List[V any] struct {
	order     rate.QueueOrder
	limit     int64 // of the sum of the waiters' weights
	perTenant int64 // of those of a tenant, if the order is Fair

	all     line[V]  // unless the order is Fair
	fair    *fair[V] // nil until a caller waits while the order is Fair
	permits int64    // the sum of the waiters' permits
	weight  int64
	length  int
	zeros   int // how many wait for 0 permits
}

// Configure makes the queue's limits those of l. Waiters beyond a lower limit stay.
func (l *List[V]) Configure(limits rate.Limits) {
	l.limit, l.perTenant = int64(limits.QueueLimit), int64(limits.QueueLimitPerTenant)
	if l.order == limits.QueueOrder {
		return
	}
	waiters := slices.Collect(l.All())
	if l.order == rate.NewestFirst {
		slices.Reverse(waiters)
	}
	for _, w := range waiters {
		l.Remove(w)
	}
	l.order, l.fair = limits.QueueOrder, nil
	for _, w := range waiters {
		l.Push(w)
	}
}

// Limits returns l with the limits of the queue.
func (l *List[V]) Limits(limits rate.Limits) rate.Limits {
	limits.QueueOrder, limits.QueueLimit, limits.QueueLimitPerTenant = l.order, int(l.limit), int(l.perTenant)
	return limits
}

// Order returns which waiter is served first.
func (l *List[V]) Order() rate.QueueOrder { return l.order }

// Limit returns the sum of the weights for which there is room.
func (l *List[V]) Limit() int { return int(l.limit) }

// Empty reports whether there are no waiters.
func (l *List[V]) Empty() bool { return l.length == 0 }

// Permits returns the sum of the permits waited for.
func (l *List[V]) Permits() int64 { return l.permits }

// Zeros returns how many waiters wait for 0 permits.
func (l *List[V]) Zeros() int { return l.zeros }

// First returns the waiter that is served first, or nil.
func (l *List[V]) First() *Waiter[V] {
	switch {
	case l.fair != nil:
		return l.fair.first()
	case l.order == rate.NewestFirst:
		return l.all.newest
	}
	return l.all.oldest
}

// All yields the waiters in the order in which they are served. The loop may remove the waiter that it has got.
func (l *List[V]) All() iter.Seq[*Waiter[V]] {
	switch {
	case l.fair != nil:
		return l.fair.all
	case l.order == rate.NewestFirst:
		return l.all.newestFirst
	}
	return l.all.oldestFirst
}

func (l *line[V]) oldestFirst(yield func(*Waiter[V]) bool) {
	for w := l.oldest; w != nil; {
		next := w.newer
		if !yield(w) {
			return
		}
		w = next
	}
}

func (l *line[V]) newestFirst(yield func(*Waiter[V]) bool) {
	for w := l.newest; w != nil; {
		next := w.older
		if !yield(w) {
			return
		}
		w = next
	}
}

// HasRoom reports whether there is room for a tenant's request for n permits without that others leave.
func (l *List[V]) HasRoom(n int, t rate.Tenant) bool {
	return l.weight <= l.limit-Weight(n) && (l.perTenant == 0 || l.order != rate.Fair || l.fair.roomOf(t) <= l.perTenant-Weight(n))
}

// MakeRoom reports whether there is room for a tenant's request for n permits. If others have to leave for it, they are no longer in
// the list, and MakeRoom returns them: if the newest are served first, the oldest; if the order is Fair, the newest of the tenant
// that has most.
func (l *List[V]) MakeRoom(n int, t rate.Tenant) (evicted []*Waiter[V], ok bool) {
	room := l.limit - Weight(n) // for the others; the limit can have been lowered below what there is
	switch {
	case room < 0:
		return nil, false
	case l.order == rate.Fair:
		return l.makeRoomFairly(room, n, t)
	case l.weight > room && l.order == rate.OldestFirst:
		return nil, false
	}
	for l.weight > room {
		evicted = append(evicted, l.all.oldest)
		l.Remove(l.all.oldest)
	}
	return evicted, true
}

// Push adds w as the newest.
func (l *List[V]) Push(w *Waiter[V]) {
	if l.order == rate.Fair {
		if l.fair == nil {
			l.fair = newFair[V]()
		}
		l.fair.push(w)
	} else {
		l.all.push(w)
	}
	l.count(w, 1)
}

// Serve takes out w, which gets its permits. It reports whether w was in the list.
func (l *List[V]) Serve(w *Waiter[V]) bool { return l.take(w, true) }

// Remove takes out w, wherever it is. It reports whether w was in the list.
func (l *List[V]) Remove(w *Waiter[V]) bool { return l.take(w, false) }

func (l *List[V]) take(w *Waiter[V], served bool) bool {
	if !w.listed {
		return false
	}
	if l.fair != nil {
		l.fair.take(w, served)
	} else {
		l.all.remove(w)
	}
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
