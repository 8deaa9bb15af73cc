package store

import (
	"time"

	"github.com/weir-go/weir/limiter"
)

const (
	// wakeSpread is the time over which wakeQueues spreads the queues that it wakes.
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

// away reports whether the key's shard is away.
func (ks *keyState) away() bool {
	return ks.c.s.calls.Away(ks.c.name, ks.key)
}

// restPause returns how much longer this instance asks for no more permits, so that rivals get some. The rest goes on
// when a new caller wakes serveLoop.
func (ks *keyState) restPause() time.Duration {
	if ks.away() {
		return 0
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.queue.Empty() {
		return 0
	}
	return ks.fair().restLeft(time.Now())
}

// waitForTurn waits until it is this instance's turn. It returns false if the Store was closed meanwhile; then the queue
// is empty.
func (ks *keyState) waitForTurn() bool {
	if ks.away() {
		return true
	}
	ks.mu.Lock()
	now := time.Now()
	wait := time.Duration(0)
	switch untilTurn := ks.fair().nextTurn.Sub(now); {
	case ks.queue.Empty():
	case ks.c.leased:
		wait = ks.fair().leasePause(ks.c.s.listening.Load(), now)
	case untilTurn <= maxTurnDelay:
		wait = untilTurn // serveLoop was woken too early
	}
	ks.mu.Unlock()
	if wait > 0 && !ks.c.s.calls.Sleep(wait) {
		ks.mu.Lock()
		defer ks.mu.Unlock()
		ks.serving = false
		return false
	}
	return true
}

// pauseUntilTurn returns how long to wait for this instance's turn if permits come back after backIn. The keyState is
// locked.
func (ks *keyState) pauseUntilTurn(backIn time.Duration) time.Duration {
	now := time.Now()
	if left := ks.fair().turnLeft(now); backIn <= left && !ks.away() {
		return left
	}
	return ks.fair().nextPause(ks.lastAnswer.def, backIn, now)
}

// pauseAfterRejection returns how long to wait after a request for n permits was rejected; n == 0 counts as 1.
func (ks *keyState) pauseAfterRejection(n int) time.Duration {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.pauseUntilTurn(ks.lastAnswer.untilAvailable(int64(n), time.Now()))
}

// pauseAfterLease is pauseAfterRejection for serveOneByOne.
func (ks *keyState) pauseAfterLease(rejected limiter.Lease) time.Duration {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	poll := pollInterval
	if ks.c.s.listening.Load() {
		poll = pollFallback
	}
	d, ok := rejected.RetryAfter()
	switch {
	case ok && !ks.c.leased:
		return ks.pauseUntilTurn(d)
	case ok && d < poll:
		return d
	}
	return poll/2 + ks.fair().random.UpTo(poll)
}

// pauseAfterServing returns how long to wait after all requests were granted. more reports whether there are waiters
// beyond allowedWaiters.
func (ks *keyState) pauseAfterServing(more bool) time.Duration {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	switch now := time.Now(); {
	case ks.away():
		return 0
	case more:
		return ks.fair().turnLeft(now)
	case ks.c.leased:
		return 0
	case !ks.fair().hasRivals(now):
		return ks.fair().gatherPause()
	case ks.lastAnswer.available(1, now):
		return max(ks.fair().gatherPause(), ks.fair().turnLeft(now))
	case ks.lastAnswer.def != nil:
		return ks.pauseUntilTurn(ks.lastAnswer.untilAvailable(1, now))
	default:
		return 0
	}
}

// leavesRest reports whether a concurrency limiter that has just got permits leaves the others to rivals.
func (ks *keyState) leavesRest() bool {
	if !ks.c.leased || ks.away() {
		return false
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.fair().hasRivals(time.Now())
}

// newcomerPause returns for how long a new caller that can wait must not ask by itself, because rivals come first. The
// keyState is locked.
func (ks *keyState) newcomerPause(now time.Time) time.Duration {
	if ks.fairness == nil {
		return 0
	}
	if ks.c.leased {
		return ks.fair().leaseNewcomerPause(ks.c.s.listening.Load(), now)
	}
	return ks.fair().newcomerPause(now)
}
