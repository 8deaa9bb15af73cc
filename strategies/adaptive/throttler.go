package adaptive

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivethrottler"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// ReasonFailureRate is the reason that a [Throttler] gives for a rejection.
const ReasonFailureRate = "failure rate too high"

// ThrottlerOptions say when a [Throttler] begins to reject, and how much. The zero
// ThrottlerOptions are the defaults.
type ThrottlerOptions struct {
	// FailureRate is the part of executions that may fail without anything being
	// rejected; 0 is 0.1.
	FailureRate float64 `json:"failure_rate,omitempty" yaml:"failure_rate,omitempty"`
	// Period is how far back executions count; 0 is 1 minute. It is at least 20 ms.
	Period time.Duration `json:"period,omitempty" yaml:"period,omitempty"`
	// MinExecutions is how many executions there must have been in the Period
	// before any is rejected; 0 is 10, -1 is none: then the first failure counts.
	MinExecutions int `json:"min_executions,omitempty" yaml:"min_executions,omitempty"`
	// MaxRejectionRate is the largest part that is rejected, whatever fails; 0 is
	// 0.9. What is let through is what shows that things are better, so with 1
	// nothing shows until the Period is over.
	MaxRejectionRate float64 `json:"max_rejection_rate,omitempty" yaml:"max_rejection_rate,omitempty"`
}

func (o ThrottlerOptions) withDefaults() ThrottlerOptions {
	setDefault(&o.FailureRate, 0.1)
	setDefault(&o.Period, time.Minute)
	setDefault(&o.MinExecutions, 10)
	setDefault(&o.MaxRejectionRate, 0.9)
	return o
}

// shortestPeriod leaves each of the 20 parts that the engine counts in a length.
const shortestPeriod = 20 * time.Millisecond

// Validate returns a [limiter.ErrInvalidOptions] that names every field that is
// wrong, or nil.
func (o ThrottlerOptions) Validate() error {
	o = o.withDefaults()
	var p problems
	p.unless(o.FailureRate > 0 && o.FailureRate < 1, "FailureRate is %v, must be between 0 and 1, or 0 for 0.1", o.FailureRate)
	p.unless(o.Period >= shortestPeriod, "Period is %v, must be at least %v, or 0 for 1m", o.Period, shortestPeriod)
	p.unless(o.MinExecutions >= -1, "MinExecutions is %d, must be at least 1, 0 for 10, or -1 for none", o.MinExecutions)
	p.unless(o.MaxRejectionRate > 0 && o.MaxRejectionRate <= 1,
		"MaxRejectionRate is %v, must be more than 0 and at most 1, or 0 for 0.9", o.MaxRejectionRate)
	return p.err()
}

func (o ThrottlerOptions) engine() adaptivethrottler.AdaptiveThrottler[any] {
	return adaptivethrottler.NewBuilder[any]().
		WithFailureRateThreshold(o.FailureRate, uint(max(o.MinExecutions, 0)), o.Period).
		WithMaxRejectionRate(o.MaxRejectionRate).
		Build()
}

// A Throttler rejects executions at random while too many of the latest have
// failed, see the package comment. Make one with [NewThrottler]; tell it with
// [New] or [Fail] what failed, or it will never reject. It is safe for concurrent
// use.
//
// It has no permits to run out of: any n that is not negative is one execution,
// for which one decision is taken. An n of 0 asks what the decision would be, and
// nothing is learned from its lease. Acquire never waits, and a rejection knows no
// RetryAfter.
type Throttler struct {
	options ThrottlerOptions
	engine  adaptivethrottler.AdaptiveThrottler[any]

	granted  atomic.Int64
	rejected atomic.Int64
	held     atomic.Int64 // leases whose outcome is not known
	learned  atomic.Int64 // on sinceStart's clock: when a success or failure was counted
	closed   atomic.Bool
}

// NewThrottler makes a throttler that has seen nothing. The error is a
// [limiter.ErrInvalidOptions].
func NewThrottler(o ThrottlerOptions) (*Throttler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	t := &Throttler{options: o, engine: o.engine()}
	t.learned.Store(int64(clock.Now() - o.Period))
	return t, nil
}

// TryAcquire decides whether an execution may go ahead.
func (t *Throttler) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	if n < 0 {
		return limiter.Lease{}, fmt.Errorf("adaptive: %w: %d", limiter.ErrPermitCount, n)
	}
	return t.Acquire(ctx, n)
}

// Acquire decides whether an execution may go ahead. It never waits.
func (t *Throttler) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	switch {
	case ctx.Err() != nil:
		return limiter.Lease{}, pipeline.ContextError(ctx)
	case n < 0:
		return limiter.Lease{}, fmt.Errorf("adaptive: %w: %d", limiter.ErrPermitCount, n)
	case t.closed.Load():
		return limiter.Lease{}, limiter.ErrClosed
	case !t.engine.TryAcquirePermit() && t.forgotten() < 0:
		t.rejected.Add(1)
		return limiter.Rejected(0, ReasonFailureRate), nil
	}
	t.granted.Add(1)
	if n == 0 {
		return limiter.GrantedRefundable(0, nil, t.takeBack), nil
	}
	t.held.Add(1)
	return (&tracked{to: t}).lease(n, throttlerKey), nil
}

// settle implements what a tracked lease tells.
func (t *Throttler) settle(_ *tracked, o outcome) {
	switch o {
	case success:
		t.engine.RecordSuccess()
		t.learned.Store(int64(clock.Now()))
	case failure:
		t.engine.RecordFailure()
		t.learned.Store(int64(clock.Now()))
	case undone:
		t.takeBack()
	}
	t.held.Add(-1)
}

func (t *Throttler) takeBack() { t.granted.Add(-1) }

// RejectionRate returns the part of executions, from 0 to 1, that was to be
// rejected when a decision was last taken.
func (t *Throttler) RejectionRate() float64 { return t.engine.RejectionRate() }

// Options returns the options, with the defaults filled in.
func (t *Throttler) Options() ThrottlerOptions { return t.options }

// Statistics returns how many were let through and how many were not. What is
// available is always [math.MaxInt64]: there is nothing to run out of.
func (t *Throttler) Statistics() limiter.Statistics {
	return limiter.Statistics{
		AvailablePermits: math.MaxInt64,
		SuccessfulLeases: t.granted.Load(),
		FailedLeases:     t.rejected.Load(),
	}
}

// IdleDuration returns for how long the throttler has had nothing to remember: no
// execution runs, and the last one that counted ended more than a Period ago.
func (t *Throttler) IdleDuration() (idle time.Duration, ok bool) {
	// held is read first: who ends an execution says when before it lets go.
	if t.held.Load() > 0 {
		return 0, false
	}
	idle = t.forgotten()
	return max(idle, 0), idle >= 0
}

// forgotten is for how long there has been nothing to remember; less than 0:
// there is something. The engine must not be asked then: it forgets only when it
// counts again, so one that rejects everything would do so for ever.
func (t *Throttler) forgotten() time.Duration {
	return clock.Now() - time.Duration(t.learned.Load()) - t.options.Period
}

// Close makes TryAcquire and Acquire return [limiter.ErrClosed]. It never fails.
func (t *Throttler) Close() error {
	t.closed.Store(true)
	return nil
}
