package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
)

// acquire is Acquire for a key.
func (c *core) acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, true); err != nil {
		return limiter.Lease{}, err
	}
	key = storedKey(key)
	room := c.queueing.Load().limit > 0
	lease, from := c.tryLocally(key, n, room)
	for {
		if from == byStore {
			var err error
			if lease, err = c.takeOrFallBack(ctx, key, n, room); err != nil {
				return limiter.Lease{}, err
			}
		}
		if isFinal(lease) {
			return c.counted(lease), nil
		}
		w, lease := c.join(ctx, key, n, lease, from)
		switch {
		case w != nil:
			return w.wait(ctx)
		case from == byFairness && !isFinal(lease) && lease.Reason() == "":
			from = byStore // rivals are a reason to wait, not to be rejected
		default:
			return c.counted(lease), nil
		}
	}
}

// A rejectedBy is what has rejected a caller.
type rejectedBy uint8

const (
	byStore    rejectedBy = iota // or not asked yet
	byKeyState                   // a remembered rejection, or the queue
	byFairness                   // only that other instances come first
)

// join puts a rejected caller into the queue, or rejects it finally. If there is no room, and the caller was rejected
// only because of rivals, the rejection has no reason.
func (c *core) join(ctx context.Context, key string, n int, rejected limiter.Lease, from rejectedBy) (*waiter, limiter.Lease) {
	q := c.queueing.Load()
	hint, _ := rejected.RetryAfter()
	if q.limit == 0 && from == byFairness {
		return nil, limiter.Lease{}
	}
	if q.limit == 0 { // needs no keyState
		if left, ok := rejected.Remaining(); ok {
			return nil, limiter.RejectedKnowing(hint, limiter.ReasonNoPermit, left)
		}
		return nil, limiter.Rejected(hint, limiter.ReasonNoPermit)
	}
	gone := ctx.Done()
	ks := c.keys.lock(key, true)
	if ks == nil && from == byFairness {
		return nil, limiter.Lease{}
	}
	if ks == nil {
		return nil, limiter.Rejected(hint, limiter.ReasonQueueLimit)
	}
	defer ks.mu.Unlock()
	if c.closed.Load() {
		return nil, limiter.Rejected(0, limiter.ReasonClosed)
	}
	if int64(n) > c.limits().Permits { // lowered since; waiters have been told
		return nil, limiter.Rejected(0, limiter.ReasonLimitLowered)
	}
	if from != byStore {
		hint = 0 // it was for a queue that may be empty now
	}
	if from == byFairness && int64(q.limit)-ks.queue.room < weight(n) {
		return nil, limiter.Lease{}
	}
	var out []*waiter
	if q.order == limiter.NewestFirst && weight(n) <= int64(q.limit) {
		out = ks.queue.makeRoom(int64(q.limit) - weight(n))
	}
	if int64(q.limit)-ks.queue.room < weight(n) {
		wait := ks.waitBehind(n)
		if wait == 0 && !c.leased {
			wait = hint
		}
		return nil, limiter.Rejected(wait, limiter.ReasonQueueLimit)
	}
	w := &waiter{ks: ks, n: n, callerGone: gone, ready: make(chan struct{})}
	before := ks.queue.newest
	ks.queue.push(w)
	for _, w := range out { // they are told how long it takes behind the present waiters
		w.lease = limiter.Rejected(ks.waitBehind(w.n), limiter.ReasonQueueLimit)
		close(w.ready)
	}
	now := time.Now()
	// The queue of a concurrency limiter may wait only because of rivals.
	if from == byStore || from == byKeyState && (!c.leased || !ks.fairness.tracks(now)) {
		ks.fairness.startWaiting(now)
	}
	c.lastWaited.Store(now.UnixNano())
	ks.startServing(w, before, hint)
	return w, limiter.Lease{}
}

// wait waits for the answer or the end of the context.
func (w *waiter) wait(ctx context.Context) (limiter.Lease, error) {
	select {
	case <-w.ready:
	case <-w.callerGone:
		if w.leave() {
			return limiter.Lease{}, contextError(ctx)
		}
		<-w.ready // the answer came first
	}
	if w.lease.Reason() == limiter.ReasonClosed {
		return w.lease, nil
	}
	return w.ks.c.counted(w.lease), nil
}

func (w *waiter) leave() bool {
	ks := w.ks
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if !w.queued {
		return false
	}
	ks.queue.remove(w)
	ks.wake() // w may have delayed others
	return true
}
