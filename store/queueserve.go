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
	q.ks.c.s.calls.Begin()
	defer q.ks.c.s.calls.End()
	ws, more := q.nextWaiters()
	switch {
	case !more:
		return 0, false
	case len(ws) == 0:
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	}
	take := q.ask(ws)
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
		if !q.deliver(w, lease) {
			giveBackLease(lease)
		}
	}
	if wait < math.MaxInt64 {
		return wait, true
	}
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	return q.pauseAfterServing(), true
}

// ask asks the store for all waiters together if it can decide about them in order, and returns a function that has the answer to
// each, or asks for it.
func (q *queue) ask(ws []*waiter) (take func(i int) (limiter.Lease, error)) {
	c, key := q.ks.c, q.ks.key
	ctx := c.s.calls.Context()
	if q.oneByOne() {
		return func(i int) (limiter.Lease, error) { return c.takeOrFallBack(ctx, key, ws[i].Permits, true) }
	}
	requests := make([]backend.Request, len(ws))
	for i, w := range ws {
		requests[i] = backend.Request{Min: int64(w.Permits), Max: int64(w.Permits), IfPrevious: i > 0 && ws[i-1].Permits > 0}
	}
	call, err := c.ask(ctx, key, requests...)
	if err == nil {
		q.ks.mu.Lock()
		q.ks.learn(call)
		q.ks.mu.Unlock()
	}
	return func(i int) (lease limiter.Lease, _ error) {
		if err == nil {
			c.s.count.decisions.Add(1)
			lease = c.leaseFor(call, i)
		}
		return c.decided(key, ws[i].Permits, false, lease, err)
	}
}

// oneByOne reports whether there is one call for each waiter: leases have no order in a call, and blocks are asked for by the key.
func (q *queue) oneByOne() bool { return q.ks.c.leased || q.ks.c.o.Block > 1 }

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

// pauseAfterLease is pauseAfterRejection for a rejected lease.
func (q *queue) pauseAfterLease(rejected limiter.Lease, got bool) time.Duration {
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	poll := pollInterval
	if q.ks.c.s.listening.Load() {
		poll = pollFallback
	}
	d, ok := rejected.RetryAfter()
	switch {
	case !q.ks.c.leased: // without a RetryAfter, permits have come back since
		return q.pauseAfterRejection(max(d, 1), got, time.Now())
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
