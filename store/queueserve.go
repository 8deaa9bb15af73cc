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
func (ks *keyState) startServing(w, before *waiter, hint time.Duration, by decider) {
	if ks.serving {
		less := ks.c.limits().QueueOrder == limiter.NewestFirst && before != nil && w.Permits < before.Permits
		if less || w.Permits == 0 && ks.queue.Zeros() == 1 {
			ks.wake() // the next waiter to be served needs fewer permits than the one before
		}
		return
	}
	now := time.Now()
	if ks.rejection.covers(w.Permits, now) || ks.lastAnswer.rejects(int64(w.Permits), now) {
		hint = ks.lastAnswer.untilAvailable(int64(w.Permits), now)
	}
	wait := time.Duration(0)
	switch {
	case ks.c.leased: // the store sends no notice of releases before a waiting caller has asked
	case by == byTurn:
		wait = ks.turnsOfKey().Left(now)
	default:
		wait = ks.pauseAfterRejection(hint, false, now)
	}
	if ks.wakeup == nil {
		ks.wakeup = make(chan struct{}, 1)
	}
	select {
	case <-ks.wakeup:
	default:
	}
	ks.serving = true
	go ks.serveLoop(wait)
}

// serveLoop serves the queue until it is empty, in rounds. If a backend ends the goroutine, another one continues.
func (ks *keyState) serveLoop(wait time.Duration) {
	returned := false
	defer func() {
		if !returned {
			go ks.serveLoop(ks.c.s.o.ProbeInterval)
		}
	}()
	for more := true; more; wait, more = ks.serveRound() {
		ks.waitForWakeup(wait)
		if ks.c.leased {
			ks.waitForTurn()
		}
	}
	returned = true
}

// waitForWakeup waits, or returns earlier if there is a reason to ask. Meanwhile it refreshes the limits when due:
// without notices, a limiter that has only waiters would learn of a raise only when permits come back.
func (ks *keyState) waitForWakeup(wait time.Duration) {
	c, begun := ks.c, time.Now()
	for now := begun; ; now = time.Now() {
		left := wait - now.Sub(begun)
		if left <= 0 {
			return
		}
		c.keeper.RefreshIfDue(now)
		t := time.NewTimer(min(left, c.untilRefresh(now)))
		select {
		case <-t.C:
		case <-ks.wakeup: // the limits may have changed
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
func (ks *keyState) waitForTurn() {
	if ks.away() {
		return
	}
	ks.mu.Lock()
	wait := time.Duration(0)
	if !ks.queue.Empty() {
		wait = ks.turnsOfKey().BeforeLease(ks.c.s.listening.Load(), time.Now())
	}
	ks.mu.Unlock()
	if wait > 0 {
		ks.c.s.calls.Sleep(wait)
	}
}

// serveRound asks for some of the waiters, and returns how long to wait before the next round; more is false if the queue is
// empty. Close waits for it, because it gives back what was granted to callers that have left.
func (ks *keyState) serveRound() (wait time.Duration, more bool) {
	ks.c.s.calls.Begin()
	defer ks.c.s.calls.End()
	ws, zeros, more := ks.nextWaiters()
	switch {
	case !more:
		return 0, false
	case len(ws) == 0 && !zeros:
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	case !ks.c.leased && ks.c.o.Block <= 1 && !ks.away():
		if q, err := ks.askTogether(ws, zeros); err == nil {
			return ks.deliverTogether(q, ws, zeros), true
		}
	}
	return ks.serveOneByOne(ws, zeros), true // or the outage policy answers
}

// nextWaiters returns the next waiters for permits, and whether there are waiters for 0 permits; more is false if the
// queue is empty.
func (ks *keyState) nextWaiters() (ws []*waiter, zeros, more bool) {
	away := ks.away()
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.queue.Empty() {
		ks.serving = false
		return nil, false, false
	}
	left := int64(math.MaxInt64)
	if a := &ks.lastAnswer; !ks.c.leased && !away && a.def != nil {
		left = ks.turnsOfKey().AtMost(&a.def.Schedule, a.took(), time.Now())
	}
	for w := range ks.queue.All(ks.c.limits().QueueOrder) {
		if w.Permits == 0 || isClosed(w.Value.gone) {
			continue
		}
		if left -= int64(w.Permits); len(ws) == maxServed || left < 0 && len(ws) > 0 {
			break
		}
		ws = append(ws, w)
	}
	return ws, ks.queue.Zeros() > 0, true
}

func (ks *keyState) askTogether(ws []*waiter, zeros bool) (*calls.Call, error) {
	requests := make([]backend.Request, 0, len(ws)+1)
	if zeros {
		requests = append(requests, backend.Request{})
	}
	for i, w := range ws {
		requests = append(requests, backend.Request{Min: int64(w.Permits), Max: int64(w.Permits), IfPrevious: i > 0})
	}
	return ks.c.ask(ks.c.s.calls.Context(), ks.key, requests...)
}

// decisions returns how many of the requests the store has decided: those behind a rejected one with IfPrevious are
// rejected with it.
func decisions(q *calls.Call) (n int64) {
	for i, a := range q.Requests {
		if a.IfPrevious && q.Granted[i-1] == backend.Rejected {
			break
		}
		n++
	}
	return n
}

// deliverTogether delivers the answer to askTogether, and returns the pause after it.
func (ks *keyState) deliverTogether(q *calls.Call, ws []*waiter, zeros bool) time.Duration {
	ks.mu.Lock()
	ks.learn(q)
	ks.mu.Unlock()
	ks.c.s.count.decisions.Add(decisions(q))
	least, first, got := int64(0), 0, false // first is the index of the request for ws[0]
	rejected := zeros && q.Granted[0] == backend.Rejected
	if zeros {
		if first = 1; !rejected {
			ks.serveZeros(custom.Granted(0, nil))
		}
	}
	for i, w := range ws {
		if q.Granted[first+i] == backend.Rejected {
			if !rejected {
				rejected, least = true, int64(w.Permits)
			}
			break
		}
		if got = true; !ks.deliver(w, ks.c.leaseFor(q, first+i)) {
			ks.c.undo(q, first+i)
		}
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if now := time.Now(); rejected {
		return ks.pauseAfterRejection(ks.lastAnswer.untilAvailable(least, now), got, now)
	}
	return ks.pauseAfterServing()
}

// serveOneByOne asks for the waiters with one call for each: for limiters that cannot ask for several in order, and by the
// outage policy.
func (ks *keyState) serveOneByOne(ws []*waiter, zeros bool) time.Duration {
	wait, got := time.Duration(math.MaxInt64), false
	if zeros {
		lease, err := ks.askFor(0)
		if err == nil && isFinal(lease) {
			ks.serveZeros(lease)
		} else {
			wait = ks.pauseAfterLease(lease, false)
		}
	}
	for _, w := range ws {
		lease, err := ks.askFor(w.Permits)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = custom.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollInterval // closed; Close rejects all waiters
		case !isFinal(lease):
			return min(wait, ks.pauseAfterLease(lease, got))
		}
		if got = true; !ks.deliver(w, lease) {
			giveBackLease(lease)
		}
	}
	if wait < math.MaxInt64 {
		return wait
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.pauseAfterServing()
}

func (ks *keyState) askFor(n int) (limiter.Lease, error) {
	return ks.c.takeOrFallBack(ks.c.s.calls.Context(), ks.key, n, true)
}

// giveBackLease gives back a lease whose caller has left.
func giveBackLease(lease limiter.Lease) {
	if lease, ok := lease.Adjust(0); !ok {
		lease.Release()
	}
}

// deliver hands a lease to w or, if its caller has left, to another waiter for as many permits. It reports whether a
// waiter got the lease.
func (ks *keyState) deliver(w *waiter, lease limiter.Lease) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if w.Listed() && !isClosed(w.Value.gone) && ks.queue.answer(w, lease) {
		return true
	}
	if !lease.Acquired() {
		return ks.queue.answer(w, lease)
	}
	next := ks.queue.findWaiter(int64(w.Permits), ks.c.limits().QueueOrder)
	return next != nil && ks.queue.answer(next, lease)
}

// serveZeros hands the lease to all waiters for 0 permits.
func (ks *keyState) serveZeros(lease limiter.Lease) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for w := range ks.queue.All(limiter.OldestFirst) {
		if w.Permits == 0 {
			ks.queue.answer(w, lease)
		}
	}
}

// pauseAfterRejection returns how long to wait after a rejection if permits come back in backIn. got reports whether some were
// granted. The keyState is locked.
func (ks *keyState) pauseAfterRejection(backIn time.Duration, got bool, now time.Time) time.Duration {
	a := &ks.lastAnswer
	if a.def == nil || ks.away() {
		return backIn
	}
	return ks.turnsOfKey().Rejected(&a.def.Schedule, a.took(), backIn, got, now)
}

// pauseAfterLease is pauseAfterRejection for serveOneByOne.
func (ks *keyState) pauseAfterLease(rejected limiter.Lease, got bool) time.Duration {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	poll := pollInterval
	if ks.c.s.listening.Load() {
		poll = pollFallback
	}
	d, ok := rejected.RetryAfter()
	switch {
	case ok && !ks.c.leased:
		return ks.pauseAfterRejection(d, got, time.Now())
	case ok && d < poll:
		return d
	}
	return poll/2 + ks.turnsOfKey().Random.UpTo(poll)
}

// pauseAfterServing returns how long to wait after all requests were granted. The keyState is locked.
func (ks *keyState) pauseAfterServing() time.Duration {
	a := &ks.lastAnswer
	if a.def == nil || ks.c.leased || ks.away() {
		return 0
	}
	now := time.Now()
	if ks.hasTurns(now) && !a.available(1, now) {
		return ks.pauseAfterRejection(a.untilAvailable(1, now), true, now)
	}
	return ks.turnsOfKey().Granted(&a.def.Schedule, a.took(), now)
}
