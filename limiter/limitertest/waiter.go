package limitertest

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A waiter is an Acquire in a goroutine of its own.
type waiter struct {
	n      int
	cancel context.CancelCauseFunc
	done   chan struct{}
	lease  limiter.Lease // valid once done
	err    error
	ended  time.Time // when Acquire returned
}

// isDone reports whether the Acquire has returned, and waits for that as long as patience says.
func (w *waiter) isDone(patience time.Duration) bool {
	select {
	case <-w.done:
		return true
	default:
	}
	if patience <= 0 {
		return false
	}
	select {
	case <-w.done:
		return true
	case <-time.After(patience):
		return false
	}
}

// acquire begins an Acquire, and returns when it waits or is done.
func (p *probe) acquire(n int) *waiter { return p.acquireWith(p.ctx, n) }

// acquireWith is acquire with another context than the case's.
func (p *probe) acquireWith(ctx context.Context, n int) *waiter {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &waiter{n: n, cancel: cancel, done: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	queued := p.queued()
	go func() {
		defer close(w.done)
		w.lease, w.err = p.l.Acquire(ctx, n)
		w.ended = time.Now()
	}()
	if p.s.RealTime { // the answer of a store can take longer than the goroutines of this process
		end := time.Now().Add(10 * p.s.Tolerance)
		for time.Now().Before(end) && p.queued() == queued && !w.isDone(p.s.Tolerance/10) {
			continue
		}
	}
	p.settle()
	return w
}

// queued returns how many permits callers wait for, in real time and if the limiter says it.
func (p *probe) queued() int64 {
	if sp, ok := p.l.(limiter.StatisticsProvider); ok && p.s.RealTime {
		return sp.Statistics().QueuedPermits
	}
	return 0
}

// waits expects that w is still waiting.
func (p *probe) waits(w *waiter) {
	if w.isDone(0) {
		p.fail(fmt.Sprintf("Acquire(%d) waits", w.n), describe(w.lease, w.err))
	}
}

// returns expects that the Acquire of w has returned.
func (p *probe) returns(w *waiter) {
	if !w.isDone(p.patience()) {
		p.fail(fmt.Sprintf("Acquire(%d) returns", w.n), "it still waits")
	}
}

// served expects that w got its permits.
func (p *probe) served(w *waiter) {
	p.returns(w)
	if w.err != nil || !w.lease.Acquired() || w.lease.Permits() != w.n {
		p.fail(fmt.Sprintf("Acquire(%d) is granted", w.n), describe(w.lease, w.err))
	}
	p.leases = append(p.leases, w.lease)
}

// rejectedWith expects that w was rejected for that reason. A limiter without a queue can say [limiter.ReasonQueueLimit]
// instead of [limiter.ReasonNoPermit].
func (p *probe) rejectedWith(w *waiter, reason string) {
	p.returns(w)
	if w.err != nil || w.lease.Acquired() {
		p.fail(fmt.Sprintf("Acquire(%d) is rejected", w.n), describe(w.lease, w.err))
	}
	got := w.lease.Reason()
	if got != reason && (reason != limiter.ReasonNoPermit || got != limiter.ReasonQueueLimit) {
		p.fail(fmt.Sprintf("the reason is %q", reason), describe(w.lease, w.err))
	}
}
