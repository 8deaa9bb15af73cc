package weirfailsafe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"
	"github.com/failsafe-go/failsafe-go/policy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// PolicyOptions are what can be said about a policy. The zero PolicyOptions are
// the defaults.
type PolicyOptions struct {
	// MapError is given every error that comes out of the pipeline, after it was
	// made to answer for failsafe-go's own, and returns the one that the policy
	// fails with: a gRPC status, say. nil: the same.
	MapError func(err error) error `json:"-" yaml:"-"`
}

// FromPipeline makes a policy of a pipeline. The callback, and the policies inside
// of this one, are what the pipeline runs. A nil p stands for one without
// strategies, a nil o for the defaults.
//
// A cancellation by the pipeline, such as that of a timeout, reaches the callback;
// values and deadlines that strategies add to the context do not: failsafe-go has
// no way to hand them on. So it stands in failsafe.With or Compose, and not in
// WithAny or ComposeAny, which hand on no cancellation either.
func FromPipeline[R any](p *pipeline.Pipeline, o *PolicyOptions) failsafe.Policy[R] {
	made := &pipelinePolicy[R]{pipeline: p}
	if o != nil {
		made.options = *o
	}
	return made
}

// LimiterOptions are what can be said about the policy of a limiter. The zero
// LimiterOptions are the defaults.
type LimiterOptions struct {
	// MapError is that of [PolicyOptions].
	MapError func(err error) error `json:"-" yaml:"-"`
	// Strategy are the options of the strategy that asks the limiter.
	Strategy ratelimit.Options `json:"strategy,omitzero" yaml:"strategy,omitempty"`
	// Listener is told what happens. nil: nobody is.
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// FromLimiter makes a policy of a limiter: the callback runs while it holds a
// permit. It waits for one where the limiter has a queue. A nil o means the
// defaults. It panics if l is nil. The limiter is never closed by the policy.
//
// It fits results of any type: with R any it may stand in WithAny and ComposeAny.
func FromLimiter[R any](l limiter.Limiter, o *LimiterOptions) failsafe.ResultAgnosticPolicy[R] {
	if v := reflect.ValueOf(l); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("weirfailsafe.FromLimiter: the limiter is nil")
	}
	if o == nil {
		o = new(LimiterOptions)
	}
	p := weir.Must(pipeline.Config{
		Strategies: []pipeline.Strategy{ratelimit.New(patient{l}, &o.Strategy)},
		Listener:   o.Listener,
	}.Build())
	return &limiterPolicy[R]{pipelinePolicy[R]{pipeline: p, options: PolicyOptions{MapError: o.MapError}}}
}

// patient is a limiter that waits, except where failsafe-go says not to.
type patient struct{ limiter.Limiter }

func (p patient) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if ctx.Value(policy.CheckOnlyKey) != nil { // a tap handle, on the goroutine that reads a connection
		return p.TryAcquire(ctx, n)
	}
	return p.Limiter.Acquire(ctx, n)
}

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

// sentinel is what failsafe-go's packages look for in the error of a policy, for a
// rejection of weir; nil for what is none, or is one of theirs.
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

// An answeringError is a rejection of weir that is one of failsafe-go, too.
type answeringError struct {
	error
	also error
}

func (e *answeringError) Is(target error) bool { return target == e.also }
func (e *answeringError) Unwrap() error        { return e.error }

func (p *pipelinePolicy[R]) mapError(err error) error {
	if also := sentinel(err); also != nil {
		err = &answeringError{error: err, also: also}
	}
	if p.options.MapError != nil {
		return p.options.MapError(err)
	}
	return err
}

// RetryAfter is a failsafe.DelayFunc: the wait before another attempt that the
// last error asks for, as a rejection by a rate limiter does, else the delay that
// the retry policy has besides. Jitter may cut it short; give the policy none.
//
//	retrypolicy.NewBuilder[R]().WithDelay(d).WithDelayFunc(weirfailsafe.RetryAfter)
func RetryAfter[R any](exec failsafe.ExecutionAttempt[R]) time.Duration {
	if d, ok := pipeline.RetryAfter(exec.LastError()); ok {
		return d
	}
	return -1
}

var _ policy.Executor[any] = (*policyExecutor[any])(nil)

// String is what Describe and logs show.
func (p *pipelinePolicy[R]) String() string {
	return fmt.Sprintf("weir pipeline %q", p.pipeline.Name())
}

// result is what the pipeline's outcome is to failsafe-go.
func result[R any](value R, err error, inner *common.PolicyResult[R]) *common.PolicyResult[R] {
	return &common.PolicyResult[R]{
		Result:     value,
		Error:      err,
		Done:       true,
		Success:    err == nil,
		SuccessAll: err == nil && (inner == nil || inner.SuccessAll),
	}
}
