package limitertest

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A testCase is one expectation, with what a limiter must have to be checked for it.
type testCase struct {
	name   string // a sentence
	rule   string // of docs/semantics.md
	kinds  []Kind // none: all but Unlimited
	needs  Feature
	limits func(l *Limits) // changes usualLimits for this case; can be nil
	script string          // see verbs; begins with a new limiter
	run    func(p *probe)  // what a script cannot say; after the script
}

// usualLimits returns the limits that most cases have: 4 permits that are all back after one Unit, for every kind, and
// room for 8 to wait.
func usualLimits(s Subject) Limits {
	return Limits{Permits: 4, Period: s.Unit, TokensPerPeriod: 4, Segments: 4, QueueLimit: 8}
}

func permits(limit, perPeriod int) func(l *Limits) {
	return func(l *Limits) { l.Permits, l.TokensPerPeriod = limit, perPeriod }
}

func withQueue(limit int) func(l *Limits) {
	return func(l *Limits) { l.QueueLimit = limit }
}

func newestFirst(queueLimit int) func(l *Limits) {
	return func(l *Limits) { l.QueueLimit, l.Order = queueLimit, limiter.NewestFirst }
}

// A probe is what a case works with: one limiter, the time since it was made, and methods for what is expected of it.
// Only the case's own goroutine uses it.
type probe struct {
	t        testing.TB
	s        Subject
	rule     string
	script   string
	step     string        // of the script
	mark     time.Duration // since the start
	named    map[string]limiter.Lease
	asked    map[string]*waiter
	failures []string

	l       limiter.Limiter
	limits  Limits
	start   time.Time          // a grid line
	before  limiter.Statistics // the statistics at the start, after findLine
	leases  []limiter.Lease
	waiters []*waiter
	ctx     context.Context
	cancel  context.CancelFunc
}

// stopCase is the panic value that ends a case.
type stopCase struct{}

func newProbe(t testing.TB, s Subject, c testCase) *probe {
	p := &probe{t: t, s: s, rule: c.rule, script: c.script, named: map[string]limiter.Lease{}, asked: map[string]*waiter{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// makeLimiter makes the limiter of the case.
func (p *probe) makeLimiter(l Limits) {
	p.t.Helper()
	if p.s.Lacks&Queue != 0 {
		l.QueueLimit = 0
	}
	p.limits = l
	p.l = p.s.New(p.t, l)
	p.start = time.Now()
	if p.s.Lacks&Anchored != 0 && slices.Contains(timedKinds, p.s.Kind) {
		p.findLine()
	}
}

// findLine waits for a grid line on which all permits are free.
func (p *probe) findLine() {
	p.granted(p.limits.Permits)
	rejected := p.rejected(p.limits.Permits)
	d, ok := rejected.RetryAfter()
	if !ok {
		p.fail("a rejection says RetryAfter, or the grid is anchored when the limiter is made", "neither")
	}
	time.Sleep(d)
	p.start = time.Now()
	p.leases = nil
	if p.s.Lacks&Statistics == 0 {
		p.before = p.statistics()
	}
}

// end cancels all waiters and closes the limiter.
func (p *probe) end() {
	p.cancel()
	p.settle()
	for _, w := range p.waiters {
		if !w.isDone() {
			p.note(fmt.Sprintf("Acquire(%d) comes back when its context is cancelled", w.n), "it still waits")
		}
	}
	if c, ok := p.l.(io.Closer); ok {
		if err := c.Close(); err != nil {
			p.note("Close succeeds", err)
		}
	}
	p.settle()
	for _, w := range p.waiters {
		if !w.isDone() { // the bubble is about to panic; this says why
			p.t.Errorf("Acquire(%d) never came back, though its context was cancelled and the limiter closed", w.n)
		}
	}
}

// note records a failure. The case continues.
func (p *probe) note(want string, got any) {
	where := ""
	if p.step != "" {
		where = fmt.Sprintf("at %q of the script %q, ", p.step, p.script)
	}
	p.failures = append(p.failures, fmt.Sprintf("rule %q of docs/semantics.md: expected that %s; got: %v (%s%v after the start, limits %+v)",
		p.rule, want, got, where, time.Since(p.start), p.limits))
}

// fail records a failure and ends the case.
func (p *probe) fail(want string, got any) {
	p.note(want, got)
	panic(stopCase{})
}

// describe returns an answer as a text.
func describe(l limiter.Lease, err error) string {
	if err != nil {
		return fmt.Sprintf("error %q", err)
	}
	return l.String()
}

// optional returns the limiter as an I, the interface of a feature. If the limiter is no I, the case fails.
func optional[I any](p *probe, feature string) I {
	i, ok := p.l.(I)
	if !ok {
		p.fail(fmt.Sprintf("the limiter is a %v, or Subject.Lacks says %s", reflect.TypeFor[I](), feature), fmt.Sprintf("%T", p.l))
	}
	return i
}

// grants reports whether TryAcquire of n is granted. An error ends the case.
func (p *probe) grants(n int) (limiter.Lease, bool) {
	lease, err := p.l.TryAcquire(p.ctx, n)
	if err != nil {
		p.fail(fmt.Sprintf("TryAcquire(%d) gives a decision", n), describe(lease, err))
	}
	if lease.Acquired() {
		p.leases = append(p.leases, lease)
		if lease.Permits() != n {
			p.fail(fmt.Sprintf("a lease for %d permits says so", n), describe(lease, err))
		}
	}
	return lease, lease.Acquired()
}

// granted expects that TryAcquire of n is granted.
func (p *probe) granted(n int) limiter.Lease {
	lease, ok := p.grants(n)
	if !ok {
		p.fail(fmt.Sprintf("TryAcquire(%d) is granted", n), describe(lease, nil))
	}
	return lease
}

// rejected expects that TryAcquire of n is rejected.
func (p *probe) rejected(n int) limiter.Lease {
	lease, ok := p.grants(n)
	if ok {
		p.fail(fmt.Sprintf("TryAcquire(%d) is rejected", n), describe(lease, nil))
	}
	return lease
}

// justBefore returns the shortest time before a grid line at which the limiter has certainly not reached that line.
func (p *probe) justBefore() time.Duration { return max(1, p.s.Resolution) }

// settle waits until all goroutines have done what they can do.
func (p *probe) settle() { synctest.Wait() }

// until sleeps until d after the start.
func (p *probe) until(d time.Duration) {
	time.Sleep(time.Until(p.start.Add(d)))
	p.settle()
}

// untilJustBefore sleeps until just before d after the start.
func (p *probe) untilJustBefore(d time.Duration) { p.until(d - p.justBefore()) }

// release releases a lease, which serves the queue.
func (p *probe) release(lease limiter.Lease) {
	lease.Release()
	p.settle()
}

// refill lets all granted permits come back, which serves the queue: it releases the leases, or waits for the next
// whole Unit. Cases that use it with windows take permits only at whole Units.
func (p *probe) refill() {
	if p.s.Kind == Concurrency {
		held := p.leases
		p.leases = nil
		for _, lease := range held {
			lease.Release()
		}
		p.settle()
		return
	}
	units := time.Since(p.start) / p.s.Unit
	p.until((units + 1) * p.s.Unit)
}

// statistics returns the limiter's statistics since the start.
func (p *probe) statistics() limiter.Statistics {
	s := optional[limiter.StatisticsProvider](p, "Statistics").Statistics()
	s.SuccessfulLeases -= p.before.SuccessfulLeases
	s.FailedLeases -= p.before.FailedLeases
	return s
}

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
