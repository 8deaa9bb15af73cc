package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/waitlist"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
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
	serving bool          // serveLoop is running
	wakeup  chan struct{} // one signal: ask again; nil until serveLoop first runs
}

// wake makes serveLoop ask again, if it has ever run.
func (q *queue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// sleepOn takes a signal of wake back.
func (q *queue) sleepOn() {
	select {
	case <-q.wakeup:
	default:
	}
}

// answer hands a waiter its lease, and reports whether it was still waiting.
func (q *queue) answer(w *waiter, lease limiter.Lease) bool {
	if !w.Listed() {
		return false
	}
	if lease.Acquired() {
		q.Serve(w)
		if q.Order() == limiter.Fair {
			lease = limiter.TenantKey.With(lease, w.Tenant)
		}
	}
	q.Remove(w)
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

// tryAcquire is TryAcquire for a key.
func (c *core) tryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, false); err != nil {
		return limiter.Lease{}, err
	}
	stored := storedKey(key)
	lease, by, queued := c.keys.tryLocally(stored, n, false, false)
	if by == byKeyState {
		return c.countLease(key, lease), nil
	}
	lease, err := c.takeOrFallBack(ctx, stored, n, queued, false)
	if err != nil {
		return limiter.Lease{}, err
	}
	return c.countLease(key, lease), nil
}

// acquire is Acquire for a key.
func (c *core) acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, true); err != nil {
		return limiter.Lease{}, err
	}
	stored := storedKey(key)
	lease, by, queued := c.keys.tryLocally(stored, n, c.limits().QueueLimit > 0, false)
	for {
		if by == byStore {
			var err error
			if lease, err = c.takeOrFallBack(ctx, stored, n, queued, c.limits().QueueLimit > 0); err != nil {
				return limiter.Lease{}, err
			}
		}
		if isFinal(lease) {
			return c.countLease(key, lease), nil
		}
		w, rejection := c.keys.join(ctx, stored, n, lease, by)
		noRoom := rejection.Reason() == limiter.ReasonQueueLimit || rejection.Reason() == limiter.ReasonNoPermit
		switch {
		case w != nil:
			return w.Value.ks.queue.await(ctx, key, w)
		case by == byTurn && noRoom:
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
// caller waits if it is rejected. With peek, nothing is taken or counted. queued is how many permits must be left for the queue.
func (table *keyTable) tryLocally(key string, n int, canWait, peek bool) (_ limiter.Lease, by decider, queued int64) {
	c := table.c
	ks := table.lock(key, canWait && c.leased) // the turns at leases count from the first one
	if ks == nil {
		return limiter.Lease{}, byStore, 0
	}
	defer ks.mu.Unlock()
	if n > 0 && !ks.queue.Empty() && c.limits().QueueOrder != limiter.NewestFirst {
		queued, now := ks.queue.Permits(), time.Now()
		if by = byKeyState; c.o.Block <= 1 && ks.hasTurns(now) && ks.lastAnswer.available(queued+int64(n), now) {
			by = byTurn // and not permits, which the queue waits for
		}
		return custom.Rejected(ks.queue.waitBehind(n), ""), by, queued
	}
	if lease, ok := ks.answerLocally(n, peek); ok {
		return lease, byKeyState, 0
	}
	if canWait && n > 0 && !ks.away() {
		now := time.Now()
		switch {
		case ks.lastAnswer.rejects(int64(n), now):
			return custom.Rejected(ks.lastAnswer.untilAvailable(int64(n), now), ""), byKeyState, 0
		case ks.hasTurns(now):
			return custom.Rejected(0, ""), byTurn, 0
		}
	}
	return limiter.Lease{}, byStore, 0
}

// join puts a rejected caller into the queue, or rejects it with a reason.
func (table *keyTable) join(ctx context.Context, key string, n int, rejected limiter.Lease, by decider) (*waiter, limiter.Lease) {
	c := table.c
	q := c.limits()
	hint, _ := rejected.RetryAfter()
	if q.QueueLimit == 0 { // needs no keyState
		return nil, limiter.ReasonKey.With(rejected, limiter.ReasonNoPermit)
	}
	gone := ctx.Done()
	var tenant limiter.Tenant
	if q.QueueOrder == limiter.Fair {
		tenant = limiter.TenantOf(ctx)
	}
	ks := table.lock(key, true)
	switch {
	case ks == nil && c.closed.Load():
		return nil, custom.Rejected(0, limiter.ReasonClosed)
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
	ks.queue.Configure(q)
	before := ks.queue.First()
	var evicted []*waiter
	ok := ks.queue.HasRoom(n, tenant)
	if by != byTurn { // else the store is asked first
		evicted, ok = ks.queue.MakeRoom(n, tenant)
	}
	if !ok {
		wait := ks.queue.waitBehind(n)
		if wait == 0 && !c.leased {
			wait = hint
		}
		return nil, custom.Rejected(wait, limiter.ReasonQueueLimit)
	}
	w := &waiter{Permits: n, Tenant: tenant, Value: waitingCaller{ks: ks, gone: gone}, Ready: make(chan struct{})}
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
		waited := q.Remove(w)
		q.wake() // w may have delayed others
		q.ks.mu.Unlock()
		if waited {
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
	line := q.LineBehind(&a.def.Schedule, &s, n)
	return max(saturate.Micros(a.def.TimeOf(line)-a.now)-time.Since(a.got), 1)
}

const (
	// maxServed is how many waiters a round of serving asks for at most.
	maxServed = 64
	// pollInterval and pollFallback are how often a concurrency limiter with waiters is asked: without notices of
	// releases, and with notices, which can be lost.
	pollInterval = 50 * time.Millisecond
	pollFallback = time.Second
)

// startServing makes sure that serveLoop runs, or wakes it. w is the newest waiter, and before is who was first without it. The
// keyState is locked.
func (q *queue) startServing(w, before *waiter, by decider) {
	if q.serving {
		less := q.First() == w && before != nil && w.Permits < before.Permits
		if less || w.Permits == 0 && q.Zeros() == 1 {
			q.wake() // the next waiter to be served needs fewer permits than the one before
		}
		return
	}
	wait, now := time.Duration(0), time.Now()
	switch {
	case q.ks.c.leased: // the store sends no notice of releases before a waiting caller has asked
	case by == byTurn:
		wait = q.ks.useTurns().Left(now)
	default:
		wait = q.pauseAfterRejection(q.ks.lastAnswer.untilAvailable(int64(w.Permits), now), false, now)
	}
	if q.wakeup == nil {
		q.wakeup = make(chan struct{}, 1)
	}
	q.sleepOn()
	q.serving = true
	go q.serveLoop(wait)
}

// serveLoop serves the queue until it is empty, in rounds. There is one in each RefreshInterval: without notices, a limiter that has
// only waiters would learn of a raise only when permits come back.
func (q *queue) serveLoop(wait time.Duration) {
	for more := true; more; wait, more = q.serveRound() {
		t := time.NewTimer(min(wait, q.ks.c.s.o.RefreshInterval))
		select {
		case <-t.C:
		case <-q.wakeup:
			t.Stop()
		}
		q.ks.c.s.calls.Settle()
		q.sleepOn() // the round hears of all that is before it
		if q.ks.c.leased {
			q.waitForTurn()
		}
	}
}

// waitForTurn waits until it is this instance's turn at leases.
func (q *queue) waitForTurn() {
	if q.ks.away() {
		return
	}
	q.ks.mu.Lock()
	wait := time.Duration(0)
	if !q.Empty() {
		wait = q.ks.useTurns().BeforeLease(q.ks.c.s.listener.connected.Load(), time.Now())
	}
	q.ks.mu.Unlock()
	if wait > 0 {
		q.ks.c.s.background.Sleep(wait)
	}
}

// serveRound asks for some of the waiters, and returns how long to wait before the next round; more is false if the queue is
// empty. Close waits for it, because it gives back what was granted to callers that have left.
func (q *queue) serveRound() (wait time.Duration, more bool) {
	q.ks.c.s.background.Begin()
	defer q.ks.c.s.background.End()
	ws, more := q.nextWaiters()
	switch {
	case !more:
		return 0, false
	case len(ws) == 0:
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	}
	take := q.askFor(ws)
	wait, got := time.Duration(math.MaxInt64), false
	for i, w := range ws {
		lease, err := take(i)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = custom.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollInterval, true // closed; Close rejects all waiters
		case !isFinal(lease):
			wait = min(wait, q.pauseAfterLease(lease, got))
			if w.Permits > 0 {
				return wait, true // those behind are rejected with it
			}
			continue
		}
		got = got || w.Permits > 0
		if q.deliver(w, lease) {
			continue
		}
		if lease, ok := lease.Adjust(0); !ok { // all callers have left: it is given back
			lease.Release()
		}
	}
	if wait < math.MaxInt64 {
		return wait, true
	}
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	return q.pauseAfterServing(), true
}

// askFor asks the store for all waiters together if it can decide about them in order, and returns a function that has the answer to
// each, or asks for it.
func (q *queue) askFor(ws []*waiter) (take func(i int) (limiter.Lease, error)) {
	c, key := q.ks.c, q.ks.key
	ctx := c.s.background.Context()
	if c.leased || c.o.Block > 1 { // leases have no order in a call, and blocks are asked for by the key
		return func(i int) (limiter.Lease, error) { return c.takeOrFallBack(ctx, key, ws[i].Permits, 0, true) }
	}
	requests := make([]backend.Request, len(ws))
	for i, w := range ws {
		requests[i] = backend.Request{Min: int64(w.Permits), Max: int64(w.Permits), IfPrevious: i > 0 && ws[i-1].Permits > 0}
	}
	call, err := c.remote.ask(ctx, key, requests...)
	if err == nil {
		c.keys.learn(call)
	}
	return func(i int) (lease limiter.Lease, _ error) {
		if err == nil {
			c.s.count.decisions.Add(1)
			lease = c.remote.leaseFor(call, i)
		}
		return c.orFallBack(key, ws[i].Permits, false, lease, err)
	}
}

// nextWaiters returns the next waiters for permits and, if there are waiters for 0 permits, one before them that stands for all of
// these. more is false if the queue is empty.
func (q *queue) nextWaiters() (ws []*waiter, more bool) {
	away := q.ks.away()
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	if q.Empty() {
		q.serving = false
		return nil, false
	}
	most := int64(math.MaxInt64)
	if a := &q.ks.lastAnswer; !q.ks.c.leased && !away && a.def != nil {
		most = q.ks.useTurns().AtMost(&a.def.Schedule, a.took(), time.Now())
	}
	q.Configure(q.ks.c.limits())
	for w := range q.All() {
		if w.Permits == 0 || ctxerr.Closed(w.Value.gone) {
			continue
		}
		if most -= int64(w.Permits); len(ws) == maxServed || most < 0 && len(ws) > 0 {
			break
		}
		ws = append(ws, w)
	}
	if q.Zeros() > 0 {
		ws = slices.Insert(ws, 0, &waiter{})
	}
	return ws, true
}

// deliver hands a lease to w or, if its caller has left, to another waiter for as many permits. It reports whether a
// waiter got the lease.
func (q *queue) deliver(w *waiter, lease limiter.Lease) bool {
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	switch {
	case w.Permits == 0:
		for w := range q.All() {
			if w.Permits == 0 {
				q.answer(w, lease)
			}
		}
		return true
	case lease.Acquired() && (!w.Listed() || ctxerr.Closed(w.Value.gone)):
		for other := range q.All() {
			if other.Permits == w.Permits && !ctxerr.Closed(other.Value.gone) {
				return q.answer(other, lease)
			}
		}
		return false
	}
	return q.answer(w, lease)
}

// pauseAfterRejection returns how long to wait after a rejection if permits come back in backIn. got reports whether some were
// granted. The keyState is locked.
func (q *queue) pauseAfterRejection(backIn time.Duration, got bool, now time.Time) time.Duration {
	a := &q.ks.lastAnswer
	if a.def == nil || q.ks.away() {
		return backIn
	}
	return q.ks.useTurns().Rejected(&a.def.Schedule, a.took(), backIn, got, now)
}

// pauseAfterLease is pauseAfterRejection for a rejected lease.
func (q *queue) pauseAfterLease(rejected limiter.Lease, got bool) time.Duration {
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	poll := pollInterval
	if q.ks.c.s.listener.connected.Load() {
		poll = pollFallback
	}
	d, ok := rejected.RetryAfter()
	switch {
	case !q.ks.c.leased: // without a RetryAfter, permits have come back since
		return q.pauseAfterRejection(max(d, 1), got, time.Now())
	case ok && d < poll:
		return d
	}
	return poll/2 + q.ks.useTurns().Random.UpTo(poll)
}

// pauseAfterServing returns how long to wait after all requests were granted. The keyState is locked.
func (q *queue) pauseAfterServing() time.Duration {
	a := &q.ks.lastAnswer
	if a.def == nil || q.ks.c.leased || q.ks.away() {
		return 0
	}
	now := time.Now()
	if q.ks.hasTurns(now) && !a.available(1, now) {
		return q.pauseAfterRejection(a.untilAvailable(1, now), true, now)
	}
	return q.ks.useTurns().Granted(&a.def.Schedule, a.took(), now)
}
