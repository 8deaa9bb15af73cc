package adaptive

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivethrottler"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// ReasonFailureRate is the reason that a [Throttler] gives for a rejection.
const ReasonFailureRate = "failure rate too high"

// ThrottlerOptions say when a [Throttler] begins to reject, and how much. The zero ThrottlerOptions are the defaults.
type ThrottlerOptions struct {
	// FailureRate is the share of executions up to which failures cause no rejections. The default is 0.1.
	FailureRate float64 `json:"failure_rate,omitempty" yaml:"failure_rate,omitempty" reload:"default=0.1"`
	// Period is how long executions count, at least 20 ms. The default is 1 minute.
	Period time.Duration `json:"period,omitempty" yaml:"period,omitempty" reload:"default=1m"`
	// MinExecutions is how many executions the Period must have before any is rejected. The default is 10; -1 is none, so
	// that the first failure can cause rejections.
	MinExecutions int `json:"min_executions,omitempty" yaml:"min_executions,omitempty" reload:"off,default=10"`
	// MaxRejectionRate is the largest share that is rejected. The executions that are let through show when the server has
	// recovered, so with 1 the throttler learns that only after the Period. The default is 0.9.
	MaxRejectionRate float64 `json:"max_rejection_rate,omitempty" yaml:"max_rejection_rate,omitempty" reload:"default=0.9"`
}

// withDefaults returns o with the defaults filled in. A nil o stands for the zero ThrottlerOptions.
func (o *ThrottlerOptions) withDefaults() ThrottlerOptions {
	full := *cmp.Or(o, new(ThrottlerOptions))
	full.FailureRate = cmp.Or(full.FailureRate, 0.1)
	full.Period = cmp.Or(full.Period, time.Minute)
	full.MinExecutions = cmp.Or(full.MinExecutions, 10)
	full.MaxRejectionRate = cmp.Or(full.MaxRejectionRate, 0.9)
	return full
}

// shortestPeriod is the shortest Period of which each of the 20 parts that the engine counts in has a length.
const shortestPeriod = 20 * time.Millisecond

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. [NewThrottler] calls it; a program
// that reads options from a file can call it earlier.
func (o *ThrottlerOptions) Validate() error {
	f := o.withDefaults()
	var p validate.Problems
	if !(f.FailureRate > 0 && f.FailureRate < 1) {
		p.Add("FailureRate", f.FailureRate, "must be between 0 and 1")
	}
	if f.Period < shortestPeriod {
		p.Add("Period", f.Period, "must be at least %v", shortestPeriod)
	}
	if f.MinExecutions < -1 {
		p.Add("MinExecutions", f.MinExecutions, "must be at least 1, or -1 for none")
	}
	if !(f.MaxRejectionRate > 0 && f.MaxRejectionRate <= 1) {
		p.Add("MaxRejectionRate", f.MaxRejectionRate, "must be more than 0 and at most 1")
	}
	return p.Err("adaptive")
}

// engine makes the throttler of failsafe-go. o is valid, with the defaults filled in.
func (o *ThrottlerOptions) engine() adaptivethrottler.AdaptiveThrottler[any] {
	return adaptivethrottler.NewBuilder[any]().
		WithFailureRateThreshold(o.FailureRate, uint(max(o.MinExecutions, 0)), o.Period).
		WithMaxRejectionRate(o.MaxRejectionRate).
		Build()
}

// A Throttler rejects executions at random while too many of the latest have failed, see the package comment. Make one
// with [NewThrottler]. Use it with the strategy that [New] makes, or call [Fail] for executions that failed; otherwise it
// never rejects. It is safe for concurrent use.
//
// It has no number of permits: any n above 0 is one execution, and an n of 0 asks for the decision only, without an
// execution to learn from. Acquire never waits, and a rejection has no RetryAfter.
type Throttler struct {
	options ThrottlerOptions
	engine  adaptivethrottler.AdaptiveThrottler[any]

	granted  atomic.Int64
	rejected atomic.Int64
	held     atomic.Int64 // leases whose outcome is not known
	learned  atomic.Int64 // when the last outcome was counted, by clock.Now
	closed   atomic.Bool
}

// NewThrottler makes a throttler without counts. If o is nil, the defaults apply. The error is a [weir.OptionsError].
func NewThrottler(o *ThrottlerOptions) (*Throttler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	full := o.withDefaults()
	t := &Throttler{options: full, engine: full.engine()}
	t.learned.Store(int64(clock.Now() - full.Period))
	return t, nil
}

// TryAcquire decides whether an execution goes on.
func (t *Throttler) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	if n < 0 {
		return limiter.Lease{}, fmt.Errorf("adaptive: %w: %d", limiter.ErrPermitCount, n)
	}
	return t.Acquire(ctx, n)
}

// Acquire decides whether an execution goes on. It never waits.
func (t *Throttler) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	switch {
	case ctx.Err() != nil:
		return limiter.Lease{}, pipeline.ContextError(ctx)
	case n < 0:
		return limiter.Lease{}, fmt.Errorf("adaptive: %w: %d", limiter.ErrPermitCount, n)
	case t.closed.Load():
		return limiter.Lease{}, limiter.ErrClosed
	case t.rejects(ctx) && t.sinceForgotten() < 0:
		t.rejected.Add(1)
		return custom.Rejected(0, ReasonFailureRate), nil
	}
	t.granted.Add(1)
	if n == 0 {
		return custom.GrantedRefundable(0, nil, t.refund), nil
	}
	t.held.Add(1)
	return (&grant{by: t}).lease(n, throttlerKey), nil
}

// rejects reports whether an execution is rejected by the rate that the engine computes now. The engine's own decision is
// made with its own random number, by which package simulate could not repeat an execution.
func (t *Throttler) rejects(ctx context.Context) bool {
	t.engine.TryAcquirePermit() // computes the rate
	rate := t.engine.RejectionRate()
	return rate >= 1 || rate > 0 && deterministic.Float64(ctx) < rate
}

// settle makes the engine learn from a grant.
func (t *Throttler) settle(_ *grant, o judge.Outcome) {
	switch o {
	case judge.Success:
		t.engine.RecordSuccess()
		t.learned.Store(int64(clock.Now()))
	case judge.Failure:
		t.engine.RecordFailure()
		t.learned.Store(int64(clock.Now()))
	case judge.Refunded:
		t.refund()
	}
	t.held.Add(-1)
}

// refund makes a grant not count.
func (t *Throttler) refund() { t.granted.Add(-1) }

// RejectionRate returns the share of executions, from 0 to 1, that was rejected at the time of the last decision.
func (t *Throttler) RejectionRate() float64 { return t.engine.RejectionRate() }

// Options returns the options with the defaults filled in.
func (t *Throttler) Options() ThrottlerOptions { return t.options }

// Statistics returns how many executions were let through and how many were rejected. AvailablePermits is always
// [math.MaxInt64].
func (t *Throttler) Statistics() limiter.Statistics {
	return limiter.Statistics{
		AvailablePermits: math.MaxInt64,
		SuccessfulLeases: t.granted.Load(),
		FailedLeases:     t.rejected.Load(),
	}
}

// IdleDuration returns how long the throttler has had no counts: no execution runs, and the last one that counted ended
// more than a Period ago. ok is false if it has counts.
func (t *Throttler) IdleDuration() (idle time.Duration, ok bool) {
	// held is read first, because settle writes learned before held.
	if t.held.Load() > 0 {
		return 0, false
	}
	idle = t.sinceForgotten()
	return max(idle, 0), idle >= 0
}

// sinceForgotten returns how long ago the last count left the Period; it is below 0 if there are counts. Acquire ignores
// a rejection of the engine after that: the engine drops old counts only when it counts again, so an engine that rejects
// everything would do so forever.
func (t *Throttler) sinceForgotten() time.Duration {
	return clock.Now() - time.Duration(t.learned.Load()) - t.options.Period
}

// Close makes TryAcquire and Acquire return [limiter.ErrClosed]. It always returns nil.
func (t *Throttler) Close() error {
	t.closed.Store(true)
	return nil
}
