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
	at     time.Time
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
func (p *probe) acquire(n int) *waiter {
	ctx, cancel := context.WithCancelCause(p.ctx)
	return p.acquireWith(ctx, cancel, n)
}

// acquireWith is acquire with a context that cancel ends.
func (p *probe) acquireWith(ctx context.Context, cancel context.CancelCauseFunc, n int) *waiter {
	w := &waiter{n: n, cancel: cancel, done: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	go func() {
		defer close(w.done)
		w.lease, w.err = p.l.Acquire(ctx, n)
		w.at = time.Now()
	}()
	p.settle()
	return w
}

// waits expects that w is still waiting.
func (p *probe) waits(w *waiter, why string) {
	if w.isDone(0) {
		p.fail(fmt.Sprintf("Acquire(%d) waits: %s", w.n, why), describe(w.lease, w.err))
	}
}

// ends expects that w is done.
func (p *probe) ends(w *waiter, why string) {
	if !w.isDone(p.patience()) {
		p.fail(fmt.Sprintf("Acquire(%d) is done: %s", w.n, why), "it still waits")
	}
}

// served expects that w got its permits.
func (p *probe) served(w *waiter, why string) {
	p.ends(w, why)
	if w.err != nil || !w.lease.Acquired() || w.lease.Permits() != w.n {
		p.fail(fmt.Sprintf("Acquire(%d) is granted: %s", w.n, why), describe(w.lease, w.err))
	}
	p.leases = append(p.leases, w.lease)
}

// rejectedWith expects that w was rejected for that reason.
func (p *probe) rejectedWith(w *waiter, reason, why string) {
	p.isRejected(w, why)
	if w.lease.Reason() != reason {
		p.fail(fmt.Sprintf("the reason is %q: %s", reason, why), describe(w.lease, w.err))
	}
}

// rejectedNoQueue expects that w was rejected because the limiter has no queue. [limiter.ReasonQueueLimit] was the
// reason for that, too, before there was [limiter.ReasonNoPermit], and limiters written then still give it.
func (p *probe) rejectedNoQueue(w *waiter, why string) {
	p.isRejected(w, why)
	if reason := w.lease.Reason(); reason != limiter.ReasonNoPermit && reason != limiter.ReasonQueueLimit {
		p.fail(fmt.Sprintf("the reason is %q: %s", limiter.ReasonNoPermit, why), describe(w.lease, w.err))
	}
}

// isRejected expects that w was rejected.
func (p *probe) isRejected(w *waiter, why string) {
	p.ends(w, why)
	if w.err != nil || w.lease.Acquired() {
		p.fail(fmt.Sprintf("Acquire(%d) is rejected: %s", w.n, why), describe(w.lease, w.err))
	}
}

// statistics returns the limiter's statistics since the start.
func (p *probe) statistics() limiter.Statistics {
	sp, ok := p.l.(limiter.StatisticsProvider)
	if !ok {
		p.fail("the limiter is a StatisticsProvider, or Subject.Lacks says Statistics", fmt.Sprintf("%T", p.l))
	}
	s := sp.Statistics()
	s.SuccessfulLeases -= p.before.SuccessfulLeases
	s.FailedLeases -= p.before.FailedLeases
	return s
}

// figures expects exactly these statistics.
func (p *probe) figures(available, queued, successes, failures int64, why string) {
	want := limiter.Statistics{
		AvailablePermits: available, QueuedPermits: queued,
		SuccessfulLeases: successes, FailedLeases: failures,
	}
	if got := p.statistics(); got != want {
		p.fail(fmt.Sprintf("the statistics are %+v: %s", want, why), fmt.Sprintf("%+v", got))
	}
}
