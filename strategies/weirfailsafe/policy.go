package weirfailsafe

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"
	"github.com/failsafe-go/failsafe-go/policy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// FromLimiterOptions are the options of a policy that [FromLimiter] makes. The zero FromLimiterOptions are the defaults.
type FromLimiterOptions struct {
	// MapError gets every error of an execution, a rejection after it was made to match [ratelimiter.ErrExceeded], and returns the
	// error that the policy fails with, such as a gRPC status. If it is nil, or returns nil, that is the same error.
	MapError func(err error) error `json:"-" yaml:"-"`
	// Strategy are the options of the strategy that takes the permits.
	Strategy ratelimit.Options `json:"strategy,omitzero" yaml:"strategy,omitempty"`
	// Listener receives the events, see [pipeline.Config.Listener].
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// FromLimiter makes a policy of a limiter: the callback runs while it holds a permit. It waits for one if the limiter has
// a queue. The policy never closes the limiter. If o is nil, the defaults apply. If l is nil, the error is a
// [weir.OptionsError].
//
// The policy fits results of any type: with R any it can be used in WithAny and ComposeAny.
func FromLimiter[R any](l limiter.Limiter, o *FromLimiterOptions) (failsafe.ResultAgnosticPolicy[R], error) {
	if isnil.Value(l) {
		var p validate.Problems
		p.Add("Limiter", nil, "must not be nil")
		return nil, p.Err("weirfailsafe")
	}
	o = cmp.Or(o, new(FromLimiterOptions))
	p, err := pipeline.Config{
		Strategies: []pipeline.Strategy{ratelimit.New(checkOnlyLimiter{l}, &o.Strategy)},
		Listener:   o.Listener,
	}.Build()
	if err != nil {
		return nil, err
	}
	return &limiterPolicy[R]{pipeline: p, mapError: o.MapError}, nil
}

// A checkOnlyLimiter is a limiter that does not wait if failsafe-go asks for a check only.
type checkOnlyLimiter struct{ limiter.Limiter }

func (l checkOnlyLimiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if ctx.Value(policy.CheckOnlyKey) != nil { // a tap handle, in the goroutine that reads a connection
		return l.TryAcquire(ctx, n)
	}
	return l.Limiter.Acquire(ctx, n)
}

// A limiterPolicy is a policy that runs a pipeline of one strategy, which takes the permits.
type limiterPolicy[R any] struct {
	pipeline *pipeline.Pipeline
	mapError func(err error) error
}

// ResultAgnostic implements [failsafe.ResultAgnosticPolicy].
func (*limiterPolicy[R]) ResultAgnostic() {}

// ToExecutor implements [failsafe.Policy].
func (p *limiterPolicy[R]) ToExecutor(_ R) any {
	e := &policyExecutor[R]{policy: p}
	e.Executor = e
	return e
}

// RetryAfter is a failsafe.DelayFunc. It returns the wait that the last error asks for, as the rejection of a rate limiter
// does, or -1, for which the retry policy uses its own delay. Jitter can shorten the wait, so do not set any.
//
//	retrypolicy.NewBuilder[R]().WithDelay(d).WithDelayFunc(weirfailsafe.RetryAfter)
func RetryAfter[R any](exec failsafe.ExecutionAttempt[R]) time.Duration {
	if d, ok := pipeline.RetryAfter(exec.LastError()); ok {
		return d
	}
	return -1
}

var _ policy.Executor[any] = (*policyExecutor[any])(nil)

// A policyExecutor runs executions of failsafe-go through the pipeline of a limiterPolicy.
type policyExecutor[R any] struct {
	policy.BaseExecutor[R]
	policy *limiterPolicy[R]
}

// Apply implements [policy.Executor].
func (e *policyExecutor[R]) Apply(inner func(failsafe.Execution[R]) *common.PolicyResult[R]) func(failsafe.Execution[R]) *common.PolicyResult[R] {
	return func(exec failsafe.Execution[R]) *common.PolicyResult[R] {
		var got *common.PolicyResult[R]
		value, err := pipeline.ExecuteValue(exec.Context(), e.policy.pipeline, func(context.Context) (R, error) {
			got = inner(exec)
			return got.Result, got.Error
		})
		if err != nil {
			// If an outer policy has cancelled the execution, its result counts.
			if canceled, decided := exec.(policy.ExecutionInternal[R]).IsCanceledWithResult(); canceled {
				return decided
			}
			if got == nil && errors.Is(err, pipeline.ErrRejected) {
				err = exceededError{err}
			}
			if e.policy.mapError != nil {
				err = cmp.Or(e.policy.mapError(err), err)
			}
		}
		return &common.PolicyResult[R]{
			Result:     value,
			Error:      err,
			Done:       true,
			Success:    err == nil,
			SuccessAll: err == nil && got.SuccessAll,
		}
	}
}

// An exceededError is a rejection by weir that matches that of failsafe-go's rate limiters, for which its packages look.
type exceededError struct{ error }

func (exceededError) Is(target error) bool { return target == ratelimiter.ErrExceeded }
func (e exceededError) Unwrap() error      { return e.error }
