package store

import (
	"errors"
	"math"
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

// startServing makes sure that serveLoop runs, or wakes it. w is the newest waiter and before the newest one before it. hint is
// how long until it is worth asking again, 0 if not known. The keyState is locked.
func (q *queue) startServing(w, before *waiter, hint time.Duration, by decider) {
	if q.serving {
		less := q.ks.c.limits().QueueOrder == limiter.NewestFirst && before != nil && w.Permits < before.Permits
		if less || w.Permits == 0 && q.Zeros() == 1 {
			q.wake() // the next waiter to be served needs fewer permits than the one before
		}
		return
	}
	now := time.Now()
	switch last := &q.ks.lastAnswer; {
	case q.ks.rejection.covers(w.Permits, now) || last.rejects(int64(w.Permits), now):
		hint = last.untilAvailable(int64(w.Permits), now)
	case last.available(int64(max(w.Permits, 1)), now):
		hint = 0 // permits came back after the rejection
	}
	wait := time.Duration(0)
	switch {
	case q.ks.c.leased: // the store sends no notice of releases before a waiting caller has asked
	case by == byTurn:
		wait = q.turnsOfKey().Left(now)
	default:
		wait = q.pauseAfterRejection(hint, false, now)
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

// serveLoop serves the queue until it is empty, in rounds. If a backend ends the goroutine, another one continues.
func (q *queue) serveLoop(wait time.Duration) {
	returned := false
	defer func() {
		if !returned {
			go q.serveLoop(q.ks.c.s.o.ProbeInterval)
		}
	}()
	for more := true; more; wait, more = q.serveRound() {
		q.waitForWakeup(wait)
		if q.ks.c.leased {
			q.waitForTurn()
		}
	}
	returned = true
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
	q.ks.c.s.calls.Begin()
	defer q.ks.c.s.calls.End()
	ws, zeros, more := q.nextWaiters()
	switch {
	case !more:
		return 0, false
	case len(ws) == 0 && !zeros:
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	case !q.ks.c.leased && q.ks.c.o.Block <= 1 && !q.ks.away():
		if call, err := q.ks.c.ask(q.ks.c.s.calls.Context(), q.ks.key, requestsFor(ws, zeros)...); err == nil {
			return q.deliverTogether(call, ws, zeros), true
		}
	}
	return q.serveOneByOne(ws, zeros), true // or the outage policy answers
}

// nextWaiters returns the next waiters for permits, and whether there are waiters for 0 permits; more is false if the
// queue is empty.
func (q *queue) nextWaiters() (ws []*waiter, zeros, more bool) {
	away := q.ks.away()
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	if q.Empty() {
		q.serving = false
		return nil, false, false
	}
	left := int64(math.MaxInt64)
	if a := &q.ks.lastAnswer; !q.ks.c.leased && !away && a.def != nil {
		left = q.turnsOfKey().AtMost(&a.def.Schedule, a.took(), time.Now())
	}
	for w := range q.All(q.ks.c.limits().QueueOrder) {
		if w.Permits == 0 || isClosed(w.Value.gone) {
			continue
		}
		if left -= int64(w.Permits); len(ws) == maxServed || left < 0 && len(ws) > 0 {
			break
		}
		ws = append(ws, w)
	}
	return ws, q.Zeros() > 0, true
}

// requestsFor returns the requests for waiters in order and, if zeros is true, for the waiters for 0 permits first.
func requestsFor(ws []*waiter, zeros bool) []backend.Request {
	requests := make([]backend.Request, 0, len(ws)+1)
	if zeros {
		requests = append(requests, backend.Request{})
	}
	for i, w := range ws {
		requests = append(requests, backend.Request{Min: int64(w.Permits), Max: int64(w.Permits), IfPrevious: i > 0})
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
func (q *queue) deliverTogether(call *calls.Call, ws []*waiter, zeros bool) time.Duration {
	q.ks.mu.Lock()
	q.ks.learn(call)
	q.ks.mu.Unlock()
	q.ks.c.s.count.decisions.Add(decisions(call))
	least, first, got := int64(0), 0, false // first is the index of the request for ws[0]
	rejected := zeros && call.Granted[0] == backend.Rejected
	if zeros {
		if first = 1; !rejected {
			q.serveZeros(custom.Granted(0, nil))
		}
	}
	for i, w := range ws {
		if call.Granted[first+i] == backend.Rejected {
			if !rejected {
				rejected, least = true, int64(w.Permits)
			}
			break
		}
		if got = true; !q.deliver(w, q.ks.c.leaseFor(call, first+i)) {
			q.ks.c.undo(call, first+i)
		}
	}
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	if now := time.Now(); rejected {
		return q.pauseAfterRejection(q.ks.lastAnswer.untilAvailable(least, now), got, now)
	}
	return q.pauseAfterServing()
}

// serveOneByOne asks for the waiters with one call for each: for limiters that cannot ask for several in order, and by the
// outage policy.
func (q *queue) serveOneByOne(ws []*waiter, zeros bool) time.Duration {
	wait, got := time.Duration(math.MaxInt64), false
	ask := func(n int) (limiter.Lease, error) {
		return q.ks.c.takeOrFallBack(q.ks.c.s.calls.Context(), q.ks.key, n, true)
	}
	if zeros {
		lease, err := ask(0)
		if err == nil && isFinal(lease) {
			q.serveZeros(lease)
		} else {
			wait = q.pauseAfterLease(lease, false)
		}
	}
	for _, w := range ws {
		lease, err := ask(w.Permits)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = custom.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollInterval // closed; Close rejects all waiters
		case !isFinal(lease):
			return min(wait, q.pauseAfterLease(lease, got))
		}
		if got = true; !q.deliver(w, lease) {
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
	if w.Listed() && !isClosed(w.Value.gone) && q.answer(w, lease) {
		return true
	}
	if !lease.Acquired() {
		return q.answer(w, lease)
	}
	next := q.findWaiter(int64(w.Permits), q.ks.c.limits().QueueOrder)
	return next != nil && q.answer(next, lease)
}

// serveZeros hands the lease to all waiters for 0 permits.
func (q *queue) serveZeros(lease limiter.Lease) {
	q.ks.mu.Lock()
	defer q.ks.mu.Unlock()
	for w := range q.All(limiter.OldestFirst) {
		if w.Permits == 0 {
			q.answer(w, lease)
		}
	}
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
