package store

import (
	"github.com/weir-go/weir/limiter"
)

// A waiter is one call of Acquire in the queue of a cell. All but ready is guarded by the
// cell's lock; lease belongs to the caller once ready is closed.
type waiter struct {
	ks           *keyState
	n            int
	callerGone   <-chan struct{} // closed when the caller's context ends
	queued       bool
	lease        limiter.Lease // the answer
	ready        chan struct{}
	older, newer *waiter
}

// A queue holds those who wait in this instance for one key, in the order in which they
// came. The zero queue is empty.
type queue struct {
	oldest, newest *waiter
	permits        int64 // the sum of what is waited for
	room           int64 // what of the limit is taken: as permits, but a zero counts as one
	zeros          int   // how many wait for zero permits
}

func (q *queue) empty() bool { return q.oldest == nil }

// weight is what a request takes of the queue's limit.
func weight(n int) int64 { return int64(max(n, 1)) }

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
	q.permits += sign * int64(w.n)
	q.room += sign * weight(w.n)
	if w.n == 0 {
		q.zeros += int(sign)
	}
}

// all returns the waiters in the order in which they are served.
func (q *queue) all(order limiter.QueueOrder) func(yield func(*waiter) bool) {
	return func(yield func(*waiter) bool) {
		if order == limiter.NewestFirst {
			for w := q.newest; w != nil; {
				older := w.older
				if !yield(w) {
					return
				}
				w = older
			}
			return
		}
		for w := q.oldest; w != nil; {
			newer := w.newer
			if !yield(w) {
				return
			}
			w = newer
		}
	}
}

// answer lets w go with that lease. It tells whether w was still waiting.
func (q *queue) answer(w *waiter, lease limiter.Lease) bool {
	if !w.queued {
		return false
	}
	q.remove(w)
	w.lease = lease
	close(w.ready)
	return true
}

// waitsFor returns the first waiter for so many permits who has not left, or nil.
func (q *queue) waitsFor(n int64, order limiter.QueueOrder) *waiter {
	for w := range q.all(order) {
		if int64(w.n) == n && !isClosed(w.callerGone) {
			return w
		}
	}
	return nil
}

// makeRoom takes the oldest out until no more room than that is taken, and returns them.
func (q *queue) makeRoom(room int64) (out []*waiter) {
	for q.room > room && q.oldest != nil {
		out = append(out, q.oldest)
		q.remove(q.oldest)
	}
	return out
}
