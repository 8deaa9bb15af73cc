package weirfailsafe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// The events of this package.
const (
	// EventRejected: a policy rejected an execution. Err is the [*PolicyError]. Its severity is Error.
	EventRejected = "OnFailsafeRejected"
	// EventPanic: the callback panicked or called [runtime.Goexit]. Err is the [*pipeline.PanicError], with the stack, which is
	// lost when the panic goes on in the caller's goroutine. Critical. A panic of the listener during this event is
	// logged with [slog.Default].
	EventPanic = "OnFailsafePanic"
)

// Options are the options of a strategy, except its policies. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Failsafe".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
}

// A Strategy runs what comes after it through policies of failsafe-go. Make one with [New]. It is safe for concurrent use.
type Strategy[R any] struct {
	options  Options
	policies []failsafe.Policy[R]
	executor failsafe.Executor[R]
}

// New makes a strategy of policies, the outermost first. Without policies it does nothing. If o is nil,
// the defaults apply.
//
// R is any, or the type of the results if the policies look at them. Then the results of the pipeline must be of that type
// or nil; any other is a [pipeline.ErrResultType], which is an error like any other for the policies.
func New[R any](o *Options, policies ...failsafe.Policy[R]) *Strategy[R] {
	s := &Strategy[R]{options: *cmp.Or(o, new(Options)), policies: slices.Clone(policies)}
	s.options.Name = cmp.Or(s.options.Name, "Failsafe")
	s.executor = failsafe.With(s.policies...)
	return s
}

// Name returns [Options.Name], or "Failsafe".
func (s *Strategy[R]) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in.
func (s *Strategy[R]) Options() Options { return s.options }

// Validate returns a [weir.OptionsError] with the policies that are nil.
func (s *Strategy[R]) Validate() error {
	var p validate.Problems
	if s.executor == nil {
		p.Add("", nil, "must be made with New")
	}
	for i, policy := range s.policies {
		if isnil.Value(policy) {
			p.Add(fmt.Sprintf("Policies[%d]", i), nil, "must not be nil")
		}
	}
	return p.Err("weirfailsafe")
}

// A Description is what [Strategy.Describe] returns as the options.
type Description struct {
	Options
	// Policies are the names of the packages of the policies, such as "retrypolicy", the outermost first.
	Policies []string `json:"policies"`
}

// Describe returns a [Description]. It is for [pipeline.Pipeline.Describe].
func (s *Strategy[R]) Describe() (options, state any) {
	d := Description{Options: s.options, Policies: make([]string, 0, len(s.policies))}
	for _, p := range s.policies {
		d.Policies = append(d.Policies, packageOf(p))
	}
	return d, nil
}

// packageOf returns the name of the package of a policy.
func packageOf(policy any) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", policy), "*"), ".")
	return name
}

// Execute runs next through the policies. It implements [pipeline.Strategy].
func (s *Strategy[R]) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if len(s.policies) == 0 {
		return next.Run(ctx)
	}
	if ctx.Err() != nil {
		return nil, ctxerr.NotBegun(ctx)
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // for attempts that the policies do not wait for
	e := &execution[R]{next: next, cancel: cancel}
	value, err := s.executor.WithContext(limited).GetWithExecution(e.attempt)
	if p := e.aborted.Load(); p != nil {
		p.Continue()
	}
	if err != nil {
		return s.failed(ctx, e, value, err)
	}
	if v := reflect.ValueOf(value); e.nothing.Load() && (!v.IsValid() || v.IsZero()) {
		return nil, nil // rather than the zero R, which would be a result of a type that strategies outside need not know
	}
	return value, nil
}

// failed makes the outcome of the strategy of an error of the executor.
func (s *Strategy[R]) failed(ctx context.Context, e *execution[R], value R, err error) (any, error) {
	if ctx.Err() != nil && (err == context.Canceled || err == context.DeadlineExceeded) { //nolint:errorlint // only the bare error, which lacks the cause
		if !e.called.Load() {
			return nil, ctxerr.NotBegun(ctx) // a policy has waited, as one with a queue does
		}
		return value, pipeline.ContextError(ctx)
	}
	if !isRejection(err) || errors.Is(err, pipeline.ErrRejected) {
		return value, err
	}
	rejected := &PolicyError{Source: e.next.Source(), Err: err, retryAfter: s.remainingDelay(err)}
	e.next.Report(ctx, pipeline.Event{Name: EventRejected, Severity: pipeline.SeverityError, Err: rejected})
	return nil, rejected
}

// remainingDelay returns how long the circuits of the strategy stay open.
func (s *Strategy[R]) remainingDelay(err error) (longest time.Duration) {
	if !errors.Is(err, circuitbreaker.ErrOpen) {
		return 0
	}
	for _, p := range s.policies {
		if breaker, ok := p.(circuitbreaker.CircuitBreaker[R]); ok {
			longest = max(longest, breaker.RemainingDelay())
		}
	}
	return longest
}

// An execution is one call of Execute. The executor can run several attempts, at once, and after the execution has ended.
type execution[R any] struct {
	next    pipeline.Next
	cancel  context.CancelCauseFunc
	aborted atomic.Pointer[pipeline.PanicError] // of the first attempt that did not return
	called  atomic.Bool                         // an attempt has begun
	latest  atomic.Pointer[any]                 // the result of the attempt that ended last
	nothing atomic.Bool                         // that attempt has succeeded without a result
}

// attempt is the callback of the executor. It runs next in a goroutine of its own, because a Goexit cannot be stopped: the
// executor must go on, and end, without it.
func (e *execution[R]) attempt(exec failsafe.Execution[R]) (value R, err error) {
	ctx := exec.Context()
	if ctx.Err() != nil { // policies of failsafe-go run their callback even then
		return value, ctxerr.NotBegun(ctx)
	}
	if latest := e.latest.Load(); latest != nil {
		holding.Release(ctx, *latest) // a policy handles it as a failure
	}
	var result struct { // one allocation for both
		any any
		is  R
	}
	e.called.Store(true)
	err = recovered.Error(func() (err error) {
		result.any, err = e.next.Run(ctx)
		e.latest.Store(&result.any)
		e.nothing.Store(result.any == nil && err == nil)
		var ok bool
		if result.is, ok = result.any.(R); !ok && result.any != nil && err == nil {
			err = fmt.Errorf("%w: %v: policies for %v, got %T", pipeline.ErrResultType, e.next.Source(), reflect.TypeFor[R](), result.any)
		}
		return err
	})
	if p, ok := err.(*pipeline.PanicError); ok { //nolint:errorlint // of this attempt
		e.abort(ctx, p)
	}
	return result.is, err
}

// abort keeps a panic for the caller's goroutine, and cancels the execution, so that no policy makes another attempt.
func (e *execution[R]) abort(ctx context.Context, p *pipeline.PanicError) {
	e.aborted.CompareAndSwap(nil, p)
	e.cancel(p)
	recovered.Hook("weirfailsafe: Listener", func() {
		e.next.Report(ctx, pipeline.Event{Name: EventPanic, Severity: pipeline.SeverityCritical, Err: p})
	})
}
