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

// isDone reports whether the Acquire has returned.
func (w *waiter) isDone() bool {
	select {
	case <-w.done:
		return true
	default:
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
	go func() {
		defer close(w.done)
		w.lease, w.err = p.l.Acquire(ctx, n)
		w.ended = time.Now()
	}()
	p.settle()
	return w
}

// waits expects that w is still waiting.
func (p *probe) waits(w *waiter) {
	if w.isDone() {
		p.fail(fmt.Sprintf("Acquire(%d) waits", w.n), describe(w.lease, w.err))
	}
}

// returns expects that the Acquire of w has returned.
func (p *probe) returns(w *waiter) {
	if !w.isDone() {
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
