package weirfailsafe

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"
	"github.com/failsafe-go/failsafe-go/policy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// PolicyOptions are the options of a policy that [FromPipeline] makes. The zero PolicyOptions are the defaults.
type PolicyOptions struct {
	// MapError gets every error of the pipeline, after it was made to match failsafe-go's own, and returns the error that
	// the policy fails with, such as a gRPC status. If nil, that is the same error.
	MapError func(err error) error `json:"-" yaml:"-"`
}

// FromPipeline makes a policy of a pipeline, which runs the callback and the policies inside this one. A nil p is a
// pipeline without strategies. If o is nil, the defaults apply.
//
// A cancellation by the pipeline, such as that of a timeout, reaches the callback. Values and deadlines that strategies
// add to the context do not, because failsafe-go has no way to hand them on. Use the policy in failsafe.With or Compose,
// not in WithAny or ComposeAny, which do not hand on a cancellation either.
func FromPipeline[R any](p *pipeline.Pipeline, o *PolicyOptions) failsafe.Policy[R] {
	return &pipelinePolicy[R]{pipeline: p, options: *cmp.Or(o, new(PolicyOptions))}
}

// FromLimiterOptions are the options of a policy that [FromLimiter] makes. The zero FromLimiterOptions are the defaults.
type FromLimiterOptions struct {
	// MapError is that of [PolicyOptions].
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
	return &limiterPolicy[R]{pipelinePolicy[R]{pipeline: p, options: PolicyOptions{MapError: o.MapError}}}, nil
}

// A checkOnlyLimiter is a limiter that does not wait if failsafe-go asks for a check only.
type checkOnlyLimiter struct{ limiter.Limiter }

func (l checkOnlyLimiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if ctx.Value(policy.CheckOnlyKey) != nil { // a tap handle, in the goroutine that reads a connection
		return l.TryAcquire(ctx, n)
	}
	return l.Limiter.Acquire(ctx, n)
}

// A pipelinePolicy is a policy that runs a pipeline.
type pipelinePolicy[R any] struct {
	pipeline *pipeline.Pipeline
	options  PolicyOptions
}

type limiterPolicy[R any] struct{ pipelinePolicy[R] }

// ResultAgnostic implements [failsafe.ResultAgnosticPolicy].
func (*limiterPolicy[R]) ResultAgnostic() {}

// ToExecutor implements [failsafe.Policy].
func (p *pipelinePolicy[R]) ToExecutor(_ R) any {
	e := &policyExecutor[R]{policy: p}
	e.Executor = e
	return e
}

// sentinel returns the error of failsafe-go that its packages look for, if err is a rejection by weir. It returns nil for
// any other error, and for one that is a rejection by failsafe-go, too.
func sentinel(err error) error {
	if !errors.Is(err, pipeline.ErrRejected) || isRejection(err) {
		return nil
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		return timeout.ErrExceeded
	}
	return ratelimiter.ErrExceeded
}

// A matchingError is a rejection by weir that matches an error of failsafe-go, too.
type matchingError struct {
	error
	sentinel error
}

func (e *matchingError) Is(target error) bool { return target == e.sentinel }
func (e *matchingError) Unwrap() error        { return e.error }

// mapError returns the error that the policy fails with for an error of the pipeline.
func (p *pipelinePolicy[R]) mapError(err error) error {
	if s := sentinel(err); s != nil {
		err = &matchingError{error: err, sentinel: s}
	}
	if p.options.MapError != nil {
		return p.options.MapError(err)
	}
	return err
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

// A policyExecutor runs executions of failsafe-go through a pipeline.
type policyExecutor[R any] struct {
	policy.BaseExecutor[R]
	policy *pipelinePolicy[R]
}

// Apply implements [policy.Executor].
func (e *policyExecutor[R]) Apply(inner func(failsafe.Execution[R]) *common.PolicyResult[R]) func(failsafe.Execution[R]) *common.PolicyResult[R] {
	return func(exec failsafe.Execution[R]) *common.PolicyResult[R] {
		run := policyRun[R]{exec: exec.(policy.ExecutionInternal[R]), inner: inner}
		value, err := pipeline.ExecuteValue(exec.Context(), e.policy.pipeline, run.attempt)
		if err != nil {
			// If an outer policy has cancelled the execution, its result counts.
			if canceled, decided := run.exec.IsCanceledWithResult(); canceled {
				return decided
			}
			err = e.policy.mapError(err)
		}
		last := run.last.Load()
		return &common.PolicyResult[R]{
			Result:     value,
			Error:      err,
			Done:       true,
			Success:    err == nil,
			SuccessAll: err == nil && (last == nil || last.SuccessAll),
		}
	}
}

// A policyRun is one execution of failsafe-go in the pipeline, which can run the inner policies several times, also at the
// same time.
type policyRun[R any] struct {
	exec  policy.ExecutionInternal[R]
	inner func(failsafe.Execution[R]) *common.PolicyResult[R]
	began atomic.Bool // an attempt has begun
	last  atomic.Pointer[common.PolicyResult[R]]
}

// attempt is the callback of the pipeline.
//
// The first attempt runs with the execution itself, unless the pipeline has given it a context that can end on its own.
// Any other attempt runs with a copy, which failsafe-go counts as an attempt. A copy is cancelled when the context that
// the pipeline has given it ends.
func (r *policyRun[R]) attempt(ctx context.Context) (none R, err error) {
	exec, again := r.exec, r.began.Swap(true)
	own := ctx.Done() != exec.Context().Done()
	if again || own {
		exec = exec.CopyForCancellable().(policy.ExecutionInternal[R])
		defer exec.Cancel(nil) // failsafe-go does this later if a response is still being read
	}
	if again {
		if decided := exec.InitializeRetry(); decided != nil {
			return none, errDecided(exec, decided)
		}
	}
	if own {
		defer context.AfterFunc(ctx, func() {
			exec.Cancel(&common.PolicyResult[R]{Error: pipeline.ContextError(ctx), Done: true})
		})()
	}
	got := r.inner(exec)
	r.last.Store(got)
	return got.Result, got.Error
}

// errDecided returns the error of an attempt that does not begin because the execution was cancelled with a result. That
// result can be a success: a hedge policy cancels the losing attempts with the winner's result. Such an attempt ends with
// the error of its context, and Apply returns the result.
func errDecided[R any](exec failsafe.Execution[R], decided *common.PolicyResult[R]) error {
	if decided.Error != nil {
		return decided.Error
	}
	if err := pipeline.ContextError(exec.Context()); err != nil {
		return err
	}
	return context.Canceled
}
