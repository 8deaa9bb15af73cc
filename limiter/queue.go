package limiter

import "sync"

// A waiter is a call of Acquire in a limiter's queue. All but ready is guarded by the limiter's lock; lease belongs to
// the caller once ready was signalled.
type waiter struct {
	n            int
	queued       bool
	lease        Lease         // the answer
	ready        chan struct{} // one signal: lease is there
	older, newer *waiter
}

// waiters holds waiters for reuse, without their channel: a channel belongs to the testing/synctest bubble in which it
// was made, and a waiter is used again outside of it.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(n int) *waiter {
	w := waiters.Get().(*waiter)
	w.n = n
	w.ready = make(chan struct{}, 1)
	return w
}

// answer gives the waiting Acquire its lease. The waiter then belongs to that call, and answer must be its last use
// elsewhere.
func (w *waiter) answer(l Lease) {
	w.lease = l
	w.ready <- struct{}{}
}

// result returns the answer and puts the waiter back into the pool. The caller has received from ready, or has left the
// queue.
func (w *waiter) result() Lease {
	l := w.lease
	*w = waiter{}
	waiters.Put(w)
	return l
}

// queue has the waiters in the order in which they came. It is guarded by the limiter's lock.
type queue struct {
	oldest, newest *waiter
	order          QueueOrder
	limit          int
	permits        int64 // the sum of the permits waited for
	taken          int64 // how much of limit the waiters take: the sum of their weights
	zeros          int   // how many waiters wait for 0 permits
	length         int
}

func (q *queue) empty() bool { return q.oldest == nil }

// weight returns how much of the queue's limit a request for n permits takes.
func weight(n int) int64 { return int64(max(n, 1)) }

// fits reports whether there is room for n. The limit can be below what is taken, after it was lowered.
func (q *queue) fits(n int) bool { return int64(q.limit)-q.taken >= weight(n) }

// first returns the waiter that is served next, or nil.
func (q *queue) first() *waiter {
	if q.order == NewestFirst {
		return q.newest
	}
	return q.oldest
}

// needs returns how many permits must be free for a waiter to be served. The queue is not empty.
func (q *queue) needs() int64 {
	if q.zeros > 0 {
		return 1
	}
	return weight(q.first().n)
}

// after returns the waiter that is served after w.
func (q *queue) after(w *waiter) *waiter {
	if q.order == NewestFirst {
		return w.older
	}
	return w.newer
}

// push adds the newest waiter.
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

// remove takes a waiter out, wherever it is.
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

// count adds a waiter to the sums with sign 1, and takes it out of them with sign -1.
func (q *queue) count(w *waiter, sign int64) {
	q.length += int(sign)
	q.permits += sign * int64(w.n)
	q.taken += sign * weight(w.n)
	if w.n == 0 {
		q.zeros += int(sign)
	}
}
