package store

import (
	"github.com/weir-go/weir/limiter"
)

// A waiter is one call of Acquire in a queue. The lock of its keyState guards all fields but ready; lease is the
// caller's once ready is closed.
type waiter struct {
	ks           *keyState
	n            int
	callerGone   <-chan struct{} // closed when the caller's context ends
	queued       bool
	lease        limiter.Lease
	ready        chan struct{}
	older, newer *waiter
}

// A queue has the waiters of this instance for one key in the order of their arrival. The zero value is empty.
type queue struct {
	oldest, newest *waiter
	permits        int64 // the sum of the waiters' permits
	room           int64 // what of QueueLimit is taken: the permits, and 1 for a waiter for none
	zeros          int   // how many wait for no permits
}

func (q *queue) empty() bool { return q.oldest == nil }

// weight returns what a waiter takes of QueueLimit.
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

// all yields the waiters in the order in which they are served.
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

// answer hands a waiter its lease, and reports whether it was still waiting.
func (q *queue) answer(w *waiter, lease limiter.Lease) bool {
	if !w.queued {
		return false
	}
	q.remove(w)
	w.lease = lease
	close(w.ready)
	return true
}

// waitsFor returns the first waiter for so many permits whose caller has not left, or nil.
func (q *queue) waitsFor(n int64, order limiter.QueueOrder) *waiter {
	for w := range q.all(order) {
		if int64(w.n) == n && !isClosed(w.callerGone) {
			return w
		}
	}
	return nil
}

// makeRoom removes the oldest waiters until at most room of QueueLimit is taken, and returns them.
func (q *queue) makeRoom(room int64) (out []*waiter) {
	for q.room > room && q.oldest != nil {
		out = append(out, q.oldest)
		q.remove(q.oldest)
	}
	return out
}
