package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// acquire is Acquire for a key.
func (c *core) acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, true); err != nil {
		return limiter.Lease{}, err
	}
	stored := storedKey(key)
	canWait := c.limits().QueueLimit > 0
	lease, by := c.tryLocally(stored, n, canWait)
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
			return w.Value.ks.await(ctx, key, w)
		case by == byFairness && !isFinal(rejection) && rejection.Reason() == "":
			by = byStore // rivals are a reason to wait, not to be rejected
		default:
			return c.countLease(key, rejection), nil
		}
	}
}

// A decider is what has decided about a request.
type decider uint8

const (
	byStore    decider = iota // the store, or it must be asked now
	byKeyState                // a remembered rejection, or the queue
	byFairness                // only that rivals come first
)

// join puts a rejected caller into the queue, or rejects it finally. If there is no room, and the caller was rejected
// only because of rivals, it returns a rejection whose Reason is empty; then the store must be asked.
func (c *core) join(ctx context.Context, key string, n int, rejected limiter.Lease, by decider) (*waiter, limiter.Lease) {
	q := c.limits()
	hint, _ := rejected.RetryAfter()
	if q.QueueLimit == 0 { // needs no keyState
		return nil, rejectionWithoutQueue(rejected, hint, by)
	}
	gone := ctx.Done()
	ks := c.keys.lock(key, true)
	switch {
	case ks == nil && c.closed.Load():
		return nil, custom.Rejected(0, limiter.ReasonClosed)
	case ks == nil && by == byFairness:
		return nil, limiter.Lease{}
	case ks == nil:
		return nil, custom.Rejected(hint, limiter.ReasonQueueLimit)
	}
	defer ks.mu.Unlock()
	switch {
	case c.closed.Load():
		return nil, custom.Rejected(0, limiter.ReasonClosed)
	case n > q.Permits: // the limit was lowered, and reconfigured has rejected such waiters
		return nil, custom.Rejected(0, limiter.ReasonLimitLowered)
	}
	if by != byStore {
		hint = 0 // it was for a queue that may be empty now
	}
	order := q.QueueOrder
	if by == byFairness {
		order = limiter.OldestFirst // evicts none: the store is asked first
	}
	evicted, ok := ks.queue.MakeRoom(n, q.QueueLimit, order)
	switch {
	case !ok && by == byFairness:
		return nil, limiter.Lease{}
	case !ok:
		wait := ks.waitBehind(n)
		if wait == 0 && !c.leased {
			wait = hint
		}
		return nil, custom.Rejected(wait, limiter.ReasonQueueLimit)
	}
	w := &waiter{Permits: n, Value: waitingCaller{ks: ks, gone: gone}, Ready: make(chan struct{})}
	ks.enqueue(w, evicted, hint, by)
	return w, limiter.Lease{}
}

// rejectionWithoutQueue returns the rejection of a caller of a limiter without a queue. If rivals were the only cause,
// the Reason is empty, as in join.
func rejectionWithoutQueue(rejected limiter.Lease, hint time.Duration, by decider) limiter.Lease {
	if by == byFairness {
		return limiter.Lease{}
	}
	if left, ok := rejected.Remaining(); ok {
		return custom.RejectedKnowing(hint, limiter.ReasonNoPermit, left)
	}
	return custom.Rejected(hint, limiter.ReasonNoPermit)
}

// enqueue puts w into the queue and rejects the evicted waiters. The keyState is locked.
func (ks *keyState) enqueue(w *waiter, evicted []*waiter, hint time.Duration, by decider) {
	before := ks.queue.First(limiter.NewestFirst)
	ks.queue.Push(w)
	for _, e := range evicted { // their Retry-After is for a place behind the present waiters
		e.Value.lease = custom.Rejected(ks.waitBehind(e.Permits), limiter.ReasonQueueLimit)
		close(e.Ready)
	}
	now := time.Now()
	// A caller behind the queue of a concurrency limiter need not lack permits: the queue may wait only because of rivals.
	if by == byStore || by == byKeyState && (!ks.c.leased || !ks.tracksRivals(now)) {
		ks.fair().startWaiting(now)
	}
	ks.c.anyKeyWaited.Store(now.UnixNano())
	ks.startServing(w, before, hint)
}

// await waits for the answer or the end of the context. key is the caller's.
func (ks *keyState) await(ctx context.Context, key string, w *waiter) (limiter.Lease, error) {
	select {
	case <-w.Ready:
	case <-w.Value.gone:
		if ks.leave(w) {
			return limiter.Lease{}, ctxerr.Of(ctx)
		}
		<-w.Ready // the answer came first
	}
	if w.Value.lease.Reason() == limiter.ReasonClosed {
		return w.Value.lease, nil
	}
	return ks.c.countLease(key, w.Value.lease), nil
}

// leave takes w out of the queue; false means that w was answered before.
func (ks *keyState) leave(w *waiter) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if !ks.queue.Remove(w) {
		return false
	}
	ks.wake() // w may have delayed others
	return true
}
