package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

const (
	// wakeSpread spreads waiters that are woken together because of the store.
	wakeSpread = 50 * time.Millisecond
	// pollInterval and pollFallback are how often a concurrency limiter with waiters is asked: without notices of
	// releases, and with notices, which can be lost.
	pollInterval = 50 * time.Millisecond
	pollFallback = time.Second
)

// waitForWakeup waits, or returns earlier if there is a reason to ask. Meanwhile it refreshes the limits when due:
// without notices, a limiter that has only waiters would learn of a raise only when permits come back.
func (ks *keyState) waitForWakeup(wait time.Duration) {
	c, begun := ks.c, time.Now()
	for now := begun; ; now = time.Now() {
		left := wait - now.Sub(begun)
		if left <= 0 {
			return
		}
		c.refreshIfDue(now)
		t := time.NewTimer(min(left, c.refreshesIn(now)))
		select {
		case <-t.C:
		case <-ks.wakeup: // the limits may have changed
			t.Stop()
			return
		}
	}
}

// refreshesIn returns when to call refreshIfDue next.
func (c *core) refreshesIn(now time.Time) time.Duration {
	left := c.s.o.RefreshInterval // used if the store cannot be asked now
	if in := c.inForce.Load(); in != nil && !now.After(in.due) {
		left = in.due.Sub(now) + 1 // refreshIfDue is due after that moment
	}
	return max(left, pollInterval)
}

// storeIsAway reports whether the key's shard is away.
func (ks *keyState) storeIsAway() bool { return ks.c.s.shardOf(ks.c.name, ks.key).breaker.err() != nil }

// fairnessPause returns how much longer this instance leaves the rest of a tick's permits to others. A new caller that
// wakes serveLoop does not change that.
func (ks *keyState) fairnessPause() time.Duration {
	if ks.storeIsAway() {
		return 0
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.queue.empty() {
		return 0
	}
	return ks.fairness.restLeft(time.Now())
}

// letOthersFirst waits for a moment if it is not this instance's turn. It returns false if the Store was closed
// meanwhile; then the queue is empty.
func (ks *keyState) letOthersFirst() bool {
	if ks.storeIsAway() {
		return true
	}
	ks.mu.Lock()
	now := time.Now()
	wait := time.Duration(0)
	switch back := ks.fairness.nextTurn.Sub(now); {
	case ks.queue.empty():
	case ks.c.leased:
		wait = ks.fairness.leasePause(ks.c.s.listening.Load(), now)
	case back <= maxTurnDelay:
		wait = back // it was woken too early
	}
	ks.mu.Unlock()
	if wait > 0 && !ks.c.s.sleep(wait) {
		ks.mu.Lock()
		defer ks.mu.Unlock()
		ks.serving = false
		return false
	}
	return true
}

// serve asks for the waiters ws in order, and if zeros for waiters for no permits. It returns how long to wait
// before the next round.
func (ks *keyState) serve(ws []*waiter, zeros bool) (wait time.Duration) {
	c := ks.c
	mine := ks.fairCount(ws)
	if c.leased || c.o.Block > 1 || ks.storeIsAway() {
		return ks.serveOneByOne(ws, mine, zeros)
	}
	requests := make([]backend.Request, 0, len(ws)+1)
	if zeros {
		requests = append(requests, backend.Request{})
	}
	first := len(requests)
	for i, w := range ws[:mine] {
		requests = append(requests, backend.Request{Min: int64(w.n), Max: int64(w.n), IfPrevious: i > 0})
	}
	q, err := c.ask(c.s.ctx, ks.key, requests...)
	if err != nil {
		return ks.serveOneByOne(ws, len(ws), zeros)
	}
	ks.mu.Lock()
	ks.learn(q)
	ks.mu.Unlock()
	served := false
	if zeros && q.granted[0] != backend.Rejected {
		ks.serveZeros(limiter.Granted(0, nil))
		zeros, served = false, true
	}
	for i, w := range ws[:mine] {
		if q.granted[first+i] == backend.Rejected {
			return ks.pauseAfterRejection(w.n, zeros)
		}
		if !ks.deliver(w, q.lease(first+i)) {
			q.undo(first + i)
		}
		served = true
	}
	if !served {
		return ks.pauseAfterRejection(0, true)
	}
	return ks.pauseAfterServing(mine < len(ws))
}

// fairCount returns for how many waiters this instance may ask now.
func (ks *keyState) fairCount(ws []*waiter) int {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	now := time.Now()
	ks.c.lastWaited.Store(now.UnixNano())
	if ks.c.leased || ks.storeIsAway() {
		return len(ws) // they are asked for one by one, or all answered at once
	}
	most := ks.fairness.maxRequest(now)
	for i, w := range ws {
		if most -= int64(w.n); most < 0 && i > 0 {
			return i
		}
	}
	return len(ws)
}

// pauseAfterRejection returns when it is this instance's turn to ask for n permits, or for one if zeros.
func (ks *keyState) pauseAfterRejection(n int, zeros bool) time.Duration {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.fairPause(ks.timeUntil(n, zeros))
}

// fairPause returns how long to wait if permits come back after wait. The keyState is locked.
func (ks *keyState) fairPause(wait time.Duration) time.Duration {
	now := time.Now()
	if alone := ks.fairness.pauseLeft(now); wait <= alone && !ks.storeIsAway() {
		return alone
	}
	return ks.fairness.nextPause(ks.lastAnswer.def, wait, now)
}

// pauseAfterServing returns how long to wait after all requests were granted. more says that other waiters are beyond
// fairCount.
func (ks *keyState) pauseAfterServing(more bool) time.Duration {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	switch now := time.Now(); {
	case ks.storeIsAway():
		return 0
	case more:
		return max(ks.fairness.pauseLeft(now), 0)
	case !ks.fairness.hasRivals(now) || ks.c.leased:
		return 0
	case ks.lastAnswer.has(1, now):
		return max(ks.fairness.pauseLeft(now), 0)
	case ks.lastAnswer.def != nil:
		return ks.fairPause(ks.timeUntil(1, false))
	default:
		return 0
	}
}

// timeUntil returns how long n permits take to come back, or one if zeros. The keyState is locked.
func (ks *keyState) timeUntil(n int, zeros bool) time.Duration {
	if zeros {
		n = 0
	}
	return ks.lastAnswer.wait(int64(n), time.Now())
}

// serveOneByOne is serve for limiters that cannot ask for several waiters in order. It requests for the first share of ws.
func (ks *keyState) serveOneByOne(ws []*waiter, share int, zeros bool) (wait time.Duration) {
	wait = math.MaxInt64
	served := false
	if zeros {
		lease, err := ks.askFor(0)
		if err == nil && isFinal(lease) {
			ks.serveZeros(lease)
			served = true
		} else {
			wait = ks.pauseAfter(lease)
		}
	}
	for _, w := range ws[:share] {
		lease, err := ks.askFor(w.n)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = limiter.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollInterval // closed; Close rejects all waiters
		case !isFinal(lease):
			return min(wait, ks.pauseAfter(lease))
		}
		if !ks.deliver(w, lease) {
			giveBack(lease)
		}
		if served = true; ks.mustYield() {
			return 0
		}
	}
	if !served {
		return wait
	}
	return ks.pauseAfterServing(share < len(ws))
}

// mustYield reports whether a concurrency limiter that has just got permits leaves the rest to other instances.
func (ks *keyState) mustYield() bool {
	if !ks.c.leased || ks.storeIsAway() {
		return false
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.fairness.hasRivals(time.Now())
}

// isFinal reports whether a waiting caller gets the lease. A plain rejection makes it wait on.
func isFinal(lease limiter.Lease) bool {
	return lease.Acquired() || lease.Reason() == limiter.ReasonUnavailable
}

// giveBack returns a lease that no caller was there to have.
func giveBack(lease limiter.Lease) {
	if lease, ok := lease.Adjust(0); !ok {
		lease.Release()
	}
}

func (ks *keyState) askFor(n int) (limiter.Lease, error) {
	return ks.c.takeOrFallBack(ks.c.s.ctx, ks.key, n, true)
}

// pauseAfter returns how long to wait after a rejection.
func (ks *keyState) pauseAfter(rejected limiter.Lease) time.Duration {
	poll := pollInterval
	if ks.c.s.listening.Load() {
		poll = pollFallback
	}
	d, ok := rejected.RetryAfter()
	switch {
	case ok && !ks.c.leased:
		ks.mu.Lock()
		defer ks.mu.Unlock()
		return ks.fairPause(d)
	case ok && d < poll:
		return d
	}
	return poll/2 + time.Duration(rand.Int64N(int64(poll)))
}

// deliver hands a lease to w, or if its caller has left to another waiter for as many permits. It returns false if
// there is none.
func (ks *keyState) deliver(w *waiter, lease limiter.Lease) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if w.queued && !isClosed(w.callerGone) && ks.queue.answer(w, lease) {
		return true
	}
	if !lease.Acquired() {
		return ks.queue.answer(w, lease)
	}
	next := ks.queue.waitsFor(int64(w.n), ks.c.queueing.Load().order)
	return next != nil && ks.queue.answer(next, lease)
}

func (ks *keyState) serveZeros(lease limiter.Lease) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for w := range ks.queue.all(limiter.OldestFirst) {
		if w.n == 0 {
			ks.queue.answer(w, lease)
		}
	}
}

// serveLoop serves the queue until it is empty. If a backend ends the goroutine, another one continues.
func (ks *keyState) serveLoop(wait time.Duration) {
	returned := false
	defer func() {
		if !returned {
			go ks.serveLoop(ks.c.s.o.ProbeInterval)
		}
	}()
	ks.serveUntilEmpty(wait)
	returned = true
}

func (ks *keyState) serveUntilEmpty(wait time.Duration) {
	for more := true; more; {
		if wait > 0 {
			ks.waitForWakeup(wait)
		}
		if wait = ks.fairnessPause(); wait > 0 {
			continue
		}
		if !ks.letOthersFirst() {
			return
		}
		wait, more = ks.serveRound()
	}
}

// serveRound is one round of serveLoop. Close waits for it, because it gives back what was granted to callers that have
// left.
func (ks *keyState) serveRound() (wait time.Duration, more bool) {
	ks.c.s.inFlight.Add(1)
	defer ks.c.s.finishInFlight()
	ws, zeros, more := ks.nextWaiters()
	if !more {
		return 0, false
	}
	if len(ws) == 0 && !zeros {
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	}
	return ks.serve(ws, zeros), true
}

// nextWaiters returns the waiters to ask for; false if the queue is empty.
func (ks *keyState) nextWaiters() (ws []*waiter, zeros bool, ok bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.queue.empty() {
		ks.serving = false
		return nil, false, false
	}
	for w := range ks.queue.all(ks.c.queueing.Load().order) {
		if w.n > 0 && !isClosed(w.callerGone) {
			ws = append(ws, w)
		}
		if len(ws) == maxForecastWaiters {
			break
		}
	}
	return ws, ks.queue.zeros > 0, true
}
