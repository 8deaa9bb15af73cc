package weirfailsafe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/failsafe-go/failsafe-go"

	"github.com/weir-go/weir/internal/isnil"
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
	problem  error // what Validate returns
}

// New makes a strategy of policies, the outermost first. Without policies it does nothing. If o is nil,
// the defaults apply.
//
// R is any, or the type of the results if the policies look at them. Then the results of the pipeline must be of that type
// or nil; any other is a [pipeline.ErrResultType].
func New[R any](o *Options, policies ...failsafe.Policy[R]) *Strategy[R] {
	s := &Strategy[R]{options: *cmp.Or(o, new(Options)), policies: slices.Clone(policies)}
	s.options.Name = cmp.Or(s.options.Name, "Failsafe")
	s.executor = failsafe.With(s.policies...)
	s.problem = s.check()
	return s
}

// Name returns [Options.Name], or "Failsafe".
func (s *Strategy[R]) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in.
func (s *Strategy[R]) Options() Options { return s.options }

// Validate returns a [weir.OptionsError] if a policy is nil.
func (s *Strategy[R]) Validate() error {
	if s.executor == nil {
		var p validate.Problems
		p.Add("", nil, "must be made with New")
		return p.Err("weirfailsafe")
	}
	return s.problem
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

// check returns a [weir.OptionsError] with the policies that are nil.
func (s *Strategy[R]) check() error {
	var p validate.Problems
	for i, policy := range s.policies {
		if isnil.Value(policy) {
			p.Add(fmt.Sprintf("Policies[%d]", i), nil, "must not be nil")
		}
	}
	return p.Err("weirfailsafe")
}

// Execute runs next through the policies. It implements [pipeline.Strategy].
func (s *Strategy[R]) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if len(s.policies) == 0 {
		return next.Run(ctx)
	}
	if ctx.Err() != nil {
		return nil, pipeline.ContextError(ctx)
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // for attempts that the policies do not wait for
	e := &execution[R]{next: next, cancel: cancel}
	value, err := s.executor.WithContext(limited).GetWithExecution(e.attempt)
	if problem := e.finish(); problem != nil {
		return nil, problem
	}
	if err == nil {
		return e.result(value), nil
	}
	return s.failed(ctx, next, value, err)
}

// failed makes the outcome of the strategy of an error of the executor.
func (s *Strategy[R]) failed(ctx context.Context, next pipeline.Next, value R, err error) (any, error) {
	if ctx.Err() != nil && (err == context.Canceled || err == context.DeadlineExceeded) { //nolint:errorlint // only the bare error, which lacks the cause
		return value, pipeline.ContextError(ctx)
	}
	if !isRejection(err) || errors.Is(err, pipeline.ErrRejected) {
		return value, err
	}
	rejected := &PolicyError{Source: next.Source(), Err: err, retryAfter: s.remainingDelay(err)}
	next.Report(ctx, pipeline.Event{Name: EventRejected, Severity: pipeline.SeverityError, Err: rejected})
	return nil, rejected
}
