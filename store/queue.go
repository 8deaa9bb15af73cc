package store

import (
	"time"

	"github.com/weir-go/weir/internal/waitlist"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A waiter is one call of Acquire in the queue of a key.
type waiter = waitlist.Waiter[waitingCaller]

type waitingCaller struct {
	ks    *keyState
	gone  <-chan struct{} // closed when the caller's context ends
	lease limiter.Lease   // the answer
}

// A queue has the waiters of this instance for one key.
type queue struct{ waitlist.List[waitingCaller] }

// weight returns how many permits must be available for a request for n.
func weight(n int) int64 { return waitlist.Weight(n) }

// answer hands a waiter its lease, and reports whether it was still waiting.
func (q *queue) answer(w *waiter, lease limiter.Lease) bool {
	if !q.Remove(w) {
		return false
	}
	w.Value.lease = lease
	close(w.Ready)
	return true
}

// findWaiter returns the first waiter for exactly n permits whose caller has not left, or nil.
func (q *queue) findWaiter(n int64, order limiter.QueueOrder) *waiter {
	for w := range q.All(order) {
		if int64(w.Permits) == n && !isClosed(w.Value.gone) {
			return w
		}
	}
	return nil
}

// waitBehind returns how long a new caller waits for n permits behind this instance's queue if no other instance takes
// any; 0 if not known. The keyState is locked.
func (ks *keyState) waitBehind(n int) time.Duration {
	a := &ks.lastAnswer
	if a.def == nil || a.def.Kind == rate.Concurrency {
		return 0
	}
	s := a.def.Advanced(a.state, a.now)
	line := ks.queue.LineBehind(&a.def.Schedule, &s, ks.c.limits().QueueOrder, n)
	return max(duration(a.def.TimeOf(line)-a.now)-time.Since(a.got), 1)
}

func isClosed(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
