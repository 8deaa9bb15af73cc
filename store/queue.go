package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/waitlist"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/internal/fairness"
)

// A waiter is one call of Acquire in the queue of a key.
type waiter = waitlist.Waiter[waitingCaller]

type waitingCaller struct {
	ks    *keyState
	gone  <-chan struct{} // closed when the caller's context ends
	lease limiter.Lease   // the answer
}

// A queue has the waiters of this instance for one key. The lock of the keyState guards it.
type queue struct {
	waitlist.List[waitingCaller]
	ks      *keyState
	serving bool            // serveLoop is running
	wakeup  chan struct{}   // one signal: ask again; nil until serveLoop first runs
	turns   *fairness.Turns // nil is as good as the zero value; see turnsOfKey
}

// turnsOfKey returns the turns, so that they can be changed. The keyState is locked.
func (q *queue) turnsOfKey() *fairness.Turns {
	if q.turns == nil {
		q.turns = &fairness.Turns{Random: q.ks.c.s.calls.MakeSource(q.ks.c.name, q.ks.key)}
	}
	return q.turns
}

// hasTurns reports whether callers that can wait ask through the queue, in its turns. The keyState is locked.
func (q *queue) hasTurns(now time.Time) bool {
	return q.turns != nil && (q.turns.Short(now) || q.turns.LookDue(now))
}

// wake makes serveLoop ask again, if it has ever run.
func (q *queue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

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

// A decider is what has decided about a request.
type decider uint8

const (
	byStore    decider = iota // the store, or it must be asked now
	byKeyState                // a remembered rejection, or the queue
	byTurn                    // only that it is not this instance's turn
)

// acquire is Acquire for a key.
func (c *core) acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, true); err != nil {
		return limiter.Lease{}, err
	}
	stored := storedKey(key)
	canWait := c.limits().QueueLimit > 0
	lease, by := c.tryLocally(stored, n, canWait, false)
	for {
		if by == byStore {
			var err error
			if lease, err = c.takeOrFallBack(ctx, stored, n, canWait); err != nil {
				return limiter.Lease{}, err
			}
		}
		if isFinal(lease) {
			return c.countLease(key, lease), nil
		}
		w, rejection := c.join(ctx, stored, n, lease, by)
		switch {
		case w != nil:
			return w.Value.ks.queue.await(ctx, key, w)
		case by == byTurn && rejection.Reason() == "":
			by = byStore // the turns of other instances are a reason to wait, not to be rejected
		default:
			return c.countLease(key, rejection), nil
		}
	}
}

// isFinal reports whether a waiting caller gets the lease. After a rejection without a reason, it waits on.
func isFinal(lease limiter.Lease) bool {
	return lease.Acquired() || lease.Reason() == limiter.ReasonUnavailable
}

// tryLocally answers without the store. If the store must decide, it returns byStore and no lease. canWait reports whether the
// caller waits if it is rejected. With peek, nothing is taken or counted.
func (c *core) tryLocally(key string, n int, canWait, peek bool) (limiter.Lease, decider) {
	ks := c.keys.lock(key, canWait && c.leased) // the turns at leases count from the first one
	if ks == nil {
		return limiter.Lease{}, byStore
	}
	defer ks.mu.Unlock()
	if n > 0 && !ks.queue.Empty() && c.limits().QueueOrder == limiter.OldestFirst {
		by, now := byKeyState, time.Now()
		if ks.queue.hasTurns(now) && ks.lastAnswer.available(ks.queue.Permits()+int64(n), now) {
			by = byTurn // and not permits, which the queue waits for
		}
		return custom.Rejected(ks.queue.waitBehind(n), ""), by
	}
	if lease, ok := ks.answerLocally(n, peek); ok {
		return lease, byKeyState
	}
	if canWait && n > 0 && !ks.away() {
		now := time.Now()
		switch {
		case ks.lastAnswer.rejects(int64(n), now):
			return custom.Rejected(ks.lastAnswer.untilAvailable(int64(n), now), ""), byKeyState
		case ks.queue.hasTurns(now):
			return custom.Rejected(0, ""), byTurn
		}
	}
	return limiter.Lease{}, byStore
}

// join puts a rejected caller into the queue, or rejects it finally. If there is no room, and the caller only has to wait for its
// turn, it returns a rejection whose Reason is empty; then the store must be asked.
func (c *core) join(ctx context.Context, key string, n int, rejected limiter.Lease, by decider) (*waiter, limiter.Lease) {
	q := c.limits()
	hint, _ := rejected.RetryAfter()
	if q.QueueLimit == 0 { // needs no keyState
		if left, ok := rejected.Remaining(); ok {
			return nil, custom.RejectedKnowing(hint, limiter.ReasonNoPermit, left)
		}
		return nil, custom.Rejected(hint, limiter.ReasonNoPermit)
	}
	gone := ctx.Done()
	ks := c.keys.lock(key, true)
	switch {
	case ks == nil && c.closed.Load():
		return nil, custom.Rejected(0, limiter.ReasonClosed)
	case ks == nil && by == byTurn:
		return nil, limiter.Lease{}
	case ks == nil:
		return nil, custom.Rejected(hint, limiter.ReasonQueueLimit)
	}
	defer ks.mu.Unlock()
	q = c.limits() // before the lock, they may have been others
	switch {
	case c.closed.Load():
		return nil, custom.Rejected(0, limiter.ReasonClosed)
	case n > q.Permits: // the limit was lowered, and reconfigured has rejected such waiters
		return nil, custom.Rejected(0, limiter.ReasonLimitLowered)
	}
	order := q.QueueOrder
	if by == byTurn {
		order = limiter.OldestFirst // evicts none: the store is asked first
	}
	evicted, ok := ks.queue.MakeRoom(n, q.QueueLimit, order)
	switch {
	case !ok && by == byTurn:
		return nil, limiter.Lease{}
	case !ok:
		wait := ks.queue.waitBehind(n)
		if wait == 0 && !c.leased {
			wait = hint
		}
		return nil, custom.Rejected(wait, limiter.ReasonQueueLimit)
	}
	before := ks.queue.First(limiter.NewestFirst)
	w := &waiter{Permits: n, Value: waitingCaller{ks: ks, gone: gone}, Ready: make(chan struct{})}
	ks.queue.Push(w)
	for _, e := range evicted { // their Retry-After is for a place behind the present waiters
		e.Value.lease = custom.Rejected(ks.queue.waitBehind(e.Permits), limiter.ReasonQueueLimit)
		close(e.Ready)
	}
	ks.queue.startServing(w, before, by)
	return w, limiter.Lease{}
}

// await waits for the answer or the end of the context. key is the caller's.
func (q *queue) await(ctx context.Context, key string, w *waiter) (limiter.Lease, error) {
	select {
	case <-w.Ready:
	case <-w.Value.gone:
		q.ks.mu.Lock()
		left := q.Remove(w)
		q.wake() // w may have delayed others
		q.ks.mu.Unlock()
		if left {
			return limiter.Lease{}, ctxerr.Of(ctx)
		}
		<-w.Ready // the answer came first
	}
	if w.Value.lease.Reason() == limiter.ReasonClosed {
		return w.Value.lease, nil
	}
	return q.ks.c.countLease(key, w.Value.lease), nil
}

// waitBehind returns how long a new caller waits for n permits behind this instance's queue if no other instance takes
// any; 0 if not known. The keyState is locked.
func (q *queue) waitBehind(n int) time.Duration {
	a := &q.ks.lastAnswer
	if a.def == nil || a.def.Kind == rate.Concurrency {
		return 0
	}
	s := a.def.Advanced(a.state, a.now)
	line := q.LineBehind(&a.def.Schedule, &s, q.ks.c.limits().QueueOrder, n)
	return max(saturate.Micros(a.def.TimeOf(line)-a.now)-time.Since(a.got), 1)
}
