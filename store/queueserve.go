package store

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

const (
	// maxServed is how many waiters a round of serving asks for at most.
	maxServed = 64
	// pollInterval and pollFallback are how often a concurrency limiter with waiters is asked: without notices of
	// releases, and with notices, which can be lost.
	pollInterval = 50 * time.Millisecond
	pollFallback = time.Second
)

// startServing makes sure that serveLoop runs, or wakes it. w is the newest waiter and before the newest one before it. The
// keyState is locked.
func (q *queue) startServing(w, before *waiter, by decider) {
	if q.serving {
		less := q.ks.c.limits().QueueOrder == limiter.NewestFirst && before != nil && w.Permits < before.Permits
		if less || w.Permits == 0 && q.Zeros() == 1 {
			q.wake() // the next waiter to be served needs fewer permits than the one before
		}
		return
	}
	wait, now := time.Duration(0), time.Now()
	switch {
	case q.ks.c.leased: // the store sends no notice of releases before a waiting caller has asked
	case by == byTurn:
		wait = q.turnsOfKey().Left(now)
	default:
		wait = q.pauseAfterRejection(q.ks.lastAnswer.untilAvailable(int64(w.Permits), now), false, now)
	}
	if q.wakeup == nil {
		q.wakeup = make(chan struct{}, 1)
	}
	select {
	case <-q.wakeup:
	default:
	}
	q.serving = true
	go q.serveLoop(wait)
}

// serveLoop serves the queue until it is empty, in rounds.
func (q *queue) serveLoop(wait time.Duration) {
	for more := true; more; wait, more = q.serveRound() {
		q.waitForWakeup(wait)
		if q.ks.c.leased {
			q.waitForTurn()
		}
	}
}

// waitForWakeup waits, or returns earlier if there is a reason to ask. Meanwhile it refreshes the limits when due:
// without notices, a limiter that has only waiters would learn of a raise only when permits come back.
func (q *queue) waitForWakeup(wait time.Duration) {
	c, begun := q.ks.c, time.Now()
	for now := begun; ; now = time.Now() {
		left := wait - now.Sub(begun)
		if left <= 0 {
			return
		}
		c.keeper.RefreshIfDue(now)
		t := time.NewTimer(min(left, c.untilRefresh(now)))
		select {
		case <-t.C:
		case <-q.wakeup: // the limits may have changed
			t.Stop()
			return
		}
	}
}

// untilRefresh returns how long until RefreshIfDue must be called.
func (c *core) untilRefresh(now time.Time) time.Duration {
	left := c.s.o.RefreshInterval // used if the store is away
	if in := c.keeper.InForce(); in.Definition != nil && !now.After(in.Due) {
		left = in.Due.Sub(now) + 1 // RefreshIfDue is due after that moment
	}
	return max(left, pollInterval)
}

// waitForTurn waits until it is this instance's turn at leases.
func (q *queue) waitForTurn() {
	if q.ks.away() {
		return
	}
	q.ks.mu.Lock()
	wait := time.Duration(0)
	if !q.Empty() {
		wait = q.turnsOfKey().BeforeLease(q.ks.c.s.listening.Load(), time.Now())
	}
	q.ks.mu.Unlock()
	if wait > 0 {
		q.ks.c.s.calls.Sleep(wait)
	}
}

// serveRound asks for some of the waiters, and returns how long to wait before the next round; more is false if the queue is
// empty. Close waits for it, because it gives back what was granted to callers that have left.
func (q *queue) serveRound() (wait time.Duration, more bool) {
	c, key := q.ks.c, q.ks.key
	ctx := c.s.calls.Context()
	c.s.calls.Begin()
	defer c.s.calls.End()
	ws, more := q.nextWaiters()
	switch {
	case !more:
		return 0, false
	case len(ws) == 0:
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	case c.leased || c.o.Block > 1: // one call for each, because they cannot be asked for in order
		return q.serveOneByOne(ws, func(n int) (limiter.Lease, error) { return c.takeOrFallBack(ctx, key, n, true) }), true
	}
	call, err := c.ask(ctx, key, requestsFor(ws)...)
	if err == nil {
		return q.deliverTogether(call, ws), true
	}
	return q.serveOneByOne(ws, func(n int) (limiter.Lease, error) { return c.decided(key, n, false, limiter.Lease{}, err) }), true
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
	left := int64(math.MaxInt64)
	if a := &q.ks.lastAnswer; !q.ks.c.leased && !away && a.def != nil {
		left = q.turnsOfKey().AtMost(&a.def.Schedule, a.took(), time.Now())
	}
	for w := range q.All(q.ks.c.limits().QueueOrder) {
		if w.Permits == 0 || calls.IsClosed(w.Value.gone) {
			continue
		}
		if left -= int64(w.Permits); len(ws) == maxServed || left < 0 && len(ws) > 0 {
			break
		}
		ws = append(ws, w)
	}
	if q.Zeros() > 0 {
		ws = slices.Insert(ws, 0, &waiter{})
	}
	return ws, true
}

// requestsFor returns the requests for waiters in order. One for permits is rejected with the one before it.
func requestsFor(ws []*waiter) []backend.Request {
	requests := make([]backend.Request, len(ws))
	for i, w := range ws {
		requests[i] = backend.Request{Min: int64(w.Permits), Max: int64(w.Permits), IfPrevious: i > 0 && ws[i-1].Permits > 0}
	}
	return requests
}

// decisions returns how many of the requests the store has decided: those behind a rejected one with IfPrevious are
// rejected with it.
func decisions(call *calls.Call) (n int64) {
	for i, a := range call.Requests {
		if a.IfPrevious && call.Granted[i-1] == backend.Rejected {
			break
		}
		n++
	}
	return n
}

// deliverTogether delivers the answer to one call for all, and returns the pause after it.
func (q *queue) deliverTogether(call *calls.Call, ws []*waiter) time.Duration {
	q.ks.mu.Lock()
	q.ks.learn(call)
	q.ks.mu.Unlock()
	q.ks.c.s.count.decisions.Add(decisions(call))
	least, got := -1, false // least: what the first waiter needs that was rejected
	for i, w := range ws {
		switch {
		case call.Granted[i] != backend.Rejected:
			got = got || w.Permits > 0
			if !q.deliver(w, q.ks.c.leaseFor(call, i)) {
				q.ks.c.undo(call, i)
			}
		case least < 0:
			least = w.Permits
		}
	}
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	if now := time.Now(); least >= 0 {
		return q.pauseAfterRejection(q.ks.lastAnswer.untilAvailable(int64(least), now), got, now)
	}
	return q.pauseAfterServing()
}

// serveOneByOne delivers an answer for each waiter, and returns the pause after the last one.
func (q *queue) serveOneByOne(ws []*waiter, ask func(n int) (limiter.Lease, error)) time.Duration {
	wait, got := time.Duration(math.MaxInt64), false
	for _, w := range ws {
		lease, err := ask(w.Permits)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = custom.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollInterval // closed; Close rejects all waiters
		case !isFinal(lease):
			wait = min(wait, q.pauseAfterLease(lease, got))
			if w.Permits > 0 {
				return wait
			}
			continue
		}
		got = got || w.Permits > 0
		if !q.deliver(w, lease) {
			giveBackLease(lease)
		}
	}
	if wait < math.MaxInt64 {
		return wait
	}
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	return q.pauseAfterServing()
}

// giveBackLease gives back a lease whose caller has left.
func giveBackLease(lease limiter.Lease) {
	if lease, ok := lease.Adjust(0); !ok {
		lease.Release()
	}
}

// deliver hands a lease to w or, if its caller has left, to another waiter for as many permits. It reports whether a
// waiter got the lease.
func (q *queue) deliver(w *waiter, lease limiter.Lease) bool {
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	switch {
	case w.Permits == 0:
		for w := range q.All(limiter.OldestFirst) {
			if w.Permits == 0 {
				q.answer(w, lease)
			}
		}
		return true
	case lease.Acquired() && (!w.Listed() || calls.IsClosed(w.Value.gone)):
		for other := range q.All(q.ks.c.limits().QueueOrder) {
			if other.Permits == w.Permits && !calls.IsClosed(other.Value.gone) {
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
	return q.turnsOfKey().Rejected(&a.def.Schedule, a.took(), backIn, got, now)
}

// pauseAfterLease is pauseAfterRejection for serveOneByOne.
func (q *queue) pauseAfterLease(rejected limiter.Lease, got bool) time.Duration {
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	poll := pollInterval
	if q.ks.c.s.listening.Load() {
		poll = pollFallback
	}
	d, ok := rejected.RetryAfter()
	switch {
	case ok && !q.ks.c.leased:
		return q.pauseAfterRejection(d, got, time.Now())
	case ok && d < poll:
		return d
	}
	return poll/2 + q.turnsOfKey().Random.UpTo(poll)
}

// pauseAfterServing returns how long to wait after all requests were granted. The keyState is locked.
func (q *queue) pauseAfterServing() time.Duration {
	a := &q.ks.lastAnswer
	if a.def == nil || q.ks.c.leased || q.ks.away() {
		return 0
	}
	now := time.Now()
	if q.hasTurns(now) && !a.available(1, now) {
		return q.pauseAfterRejection(a.untilAvailable(1, now), true, now)
	}
	return q.turnsOfKey().Granted(&a.def.Schedule, a.took(), now)
}
