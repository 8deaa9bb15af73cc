package limiter

import "sync"

// A waiter is one call of Acquire in a limiter's queue. Everything but ready is
// guarded by the limiter's lock; lease belongs to the caller once ready has been
// signalled.
type waiter struct {
	n            int
	queued       bool
	lease        Lease         // the answer
	ready        chan struct{} // one signal: lease is there
	older, newer *waiter
}

// waiters keeps used ones, without their channel: a channel belongs to the
// testing/synctest bubble in which it was made, a waiter must not.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(n int) *waiter {
	w := waiters.Get().(*waiter)
	w.n = n
	w.ready = make(chan struct{}, 1)
	return w
}

// answer tells the caller, who is the last to use the waiter.
func (w *waiter) answer(l Lease) {
	w.lease = l
	w.ready <- struct{}{}
}

// take returns the answer and gives the waiter back. The caller has received
// from ready, or has left the queue.
func (w *waiter) take() Lease {
	l := w.lease
	*w = waiter{}
	waiters.Put(w)
	return l
}

// queue holds those who wait, in the order in which they came. It is guarded by
// its limiter's lock.
type queue struct {
	oldest, newest *waiter
	order          QueueOrder
	limit          int
	permits        int64 // the sum of what is waited for
	room           int64 // what of limit is taken: as permits, but a zero counts as one
	zeros          int   // how many wait for zero permits
	length         int
}

func (q *queue) empty() bool { return q.oldest == nil }

// weight is what a request takes of the queue's limit.
func weight(n int) int64 { return int64(max(n, 1)) }

// fits tells whether there is room for n. The limit may be below what is taken,
// after it was lowered.
func (q *queue) fits(n int) bool { return int64(q.limit)-q.room >= weight(n) }

// first is the waiter whose turn it is; nil if nobody waits.
func (q *queue) first() *waiter {
	if q.order == NewestFirst {
		return q.newest
	}
	return q.oldest
}

// needs is how many permits must be free for a waiter to be served. The queue is
// not empty.
func (q *queue) needs() int64 {
	if q.zeros > 0 {
		return 1
	}
	return weight(q.first().n)
}

// after is the waiter whose turn comes after that of w.
func (q *queue) after(w *waiter) *waiter {
	if q.order == NewestFirst {
		return w.older
	}
	return w.newer
}

func (q *queue) push(w *waiter) {
	w.queued = true
	w.older = q.newest
	if q.newest != nil {
		q.newest.newer = w
	} else {
		q.oldest = w
	}
	q.newest = w
	q.count(w, 1)
}

func (q *queue) remove(w *waiter) {
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		q.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		q.newest = w.older
	}
	w.older, w.newer, w.queued = nil, nil, false
	q.count(w, -1)
}

func (q *queue) count(w *waiter, sign int64) {
	q.length += int(sign)
	q.permits += sign * int64(w.n)
	q.room += sign * weight(w.n)
	if w.n == 0 {
		q.zeros += int(sign)
	}
}
