package store

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
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
	weight         int64 // what is taken of QueueLimit: the sum of the waiters' weights
	length         int   // how many waiters there are
	zeros          int   // how many of them wait for 0 permits
}

func (q *queue) empty() bool { return q.oldest == nil }

// weight returns what a waiter for n permits takes of QueueLimit.
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
	q.length += int(sign)
	q.permits += sign * int64(w.n)
	q.weight += sign * weight(w.n)
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

// findWaiter returns the first waiter for exactly n permits whose caller has not left, or nil.
func (q *queue) findWaiter(n int64, order limiter.QueueOrder) *waiter {
	for w := range q.all(order) {
		if int64(w.n) == n && !isClosed(w.callerGone) {
			return w
		}
	}
	return nil
}

// evictOldest removes the oldest waiters until the weight of the queue is limit or less, and returns them.
func (q *queue) evictOldest(limit int64) (evicted []*waiter) {
	for q.weight > limit && q.oldest != nil {
		evicted = append(evicted, q.oldest)
		q.remove(q.oldest)
	}
	return evicted
}

// maxForecastWaiters is how many waiters a forecast computes one by one.
const maxForecastWaiters = 64

// waitBehind returns how long a new caller waits for n permits behind this instance's queue if no other instance takes
// any; 0 if not known. The keyState is locked.
func (ks *keyState) waitBehind(n int) time.Duration {
	a := &ks.lastAnswer
	if a.def == nil || a.def.Kind == rate.Concurrency {
		return 0
	}
	order := ks.c.queueingInForce().order
	overtakes := n == 0 || order == limiter.NewestFirst
	s, at, seen := a.def.Advanced(a.state, a.now), a.now, 0
	left := ks.queue.permits
	for w := range ks.queue.all(order) {
		if w.n == 0 {
			continue // takes nothing
		}
		need := min(int64(w.n), a.def.Permits)
		wait := a.def.Wait(&s, at, need)
		if mine := a.def.Wait(&s, at, weight(n)); overtakes && mine < wait {
			at = saturate.Add(at, mine)
			return ks.sinceAnswer(at)
		}
		if seen++; seen > maxForecastWaiters {
			// Each further waiter waits no longer than an empty bucket or window takes to become full. And while there
			// are waiters, less than largest permits are free, so that each of these times gives at least gain.
			rest, others := saturate.Add(left, weight(n)), int64(ks.queue.length-ks.queue.zeros-seen+1)
			times, largest := saturate.Add(others, 1), rest-others
			if gain := a.def.Permits - largest + 1; gain > 0 {
				times = min(times, 1+(rest-1)/gain)
			}
			empty := a.def.Full(at)
			a.def.Charge(&empty, a.def.Permits)
			at = saturate.Add(at, saturate.Mul(times, a.def.FullAt(&empty)-a.def.TimeOf(empty.Line)))
			return ks.sinceAnswer(at)
		}
		at = saturate.Add(at, wait)
		a.def.Advance(&s, at)
		a.def.Charge(&s, need)
		left -= need
	}
	return ks.sinceAnswer(saturate.Add(at, a.def.Wait(&s, at, weight(n))))
}

// sinceAnswer returns the time from now to a moment of the store's clock, at least 1 ns.
func (ks *keyState) sinceAnswer(at int64) time.Duration {
	return max(duration(at-ks.lastAnswer.now)-time.Since(ks.lastAnswer.got), 1)
}

func isClosed(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
