package weirfailsafe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"

	"github.com/weir-go/weir/pipeline"
)

// The events of this package.
const (
	// EventRejected: a policy turned an execution away; Err is the
	// [*RejectedError]. Error.
	EventRejected = "OnFailsafeRejected"
	// EventPanic: the callback panicked or left its goroutine; Err is the
	// [*PanicError], with the stack that is lost when the panic goes on from the
	// caller's goroutine. Critical. A panic of the listener is logged with [slog.Default] here.
	EventPanic = "OnFailsafePanic"
)

// Options are what can be said about the strategy besides its policies. The zero
// Options are the defaults.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "Failsafe".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
}

// A Strategy runs what comes after it through policies of failsafe-go. Make one
// with [New]; without policies it does nothing. It is safe for concurrent use.
type Strategy[R any] struct {
	options  Options
	policies []failsafe.Policy[R]
	executor failsafe.Executor[R]
	problem  error
}

// New makes a strategy of policies, outermost first. A nil o means the defaults.
//
// R is any, or the type of the results where the policies look at them; then the
// pipeline must be used for results of that type or none. Another is a
// [pipeline.ErrResultType].
func New[R any](o *Options, policies ...failsafe.Policy[R]) *Strategy[R] {
	s := &Strategy[R]{policies: slices.Clone(policies)}
	if o != nil {
		s.options = *o
	}
	if s.options.Name == "" {
		s.options.Name = "Failsafe"
	}
	s.executor = failsafe.With(s.policies...)
	s.problem = s.check()
	return s
}

// Name returns [Options.Name], or "Failsafe".
func (s *Strategy[R]) Name() string { return s.options.Name }

// Options returns the options, with the defaults filled in.
func (s *Strategy[R]) Options() Options { return s.options }

// Validate returns what is wrong with the policies, or nil.
func (s *Strategy[R]) Validate() error {
	if s.executor == nil {
		return errors.New("failsafe: the strategy was made without New")
	}
	return s.problem
}

// A Description is what [Strategy.Describe] says about the options.
type Description struct {
	Options
	// Policies are the packages that the policies come from, outermost first, such
	// as "retrypolicy".
	Policies []string `json:"policies"`
}

// Describe says what the strategy is made of, as a [Description]. It is for
// [pipeline.Pipeline.Describe].
func (s *Strategy[R]) Describe() (options, state any) {
	d := Description{Options: s.options, Policies: make([]string, 0, len(s.policies))}
	for _, p := range s.policies {
		d.Policies = append(d.Policies, kindOf(p))
	}
	return d, nil
}

func kindOf(policy any) string {
	t := reflect.TypeOf(policy)
	if t == nil {
		return "nil"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return path.Base(t.PkgPath())
}

// check finds policies that failsafe-go would panic about when they are first used.
func (s *Strategy[R]) check() error {
	var problems []error
	for i, p := range s.policies {
		if err := checkPolicy(p); err != nil {
			problems = append(problems, fmt.Errorf("policy %d (%s): %w", i+1, kindOf(p), err))
		}
	}
	return errors.Join(problems...)
}

func checkPolicy[R any](p failsafe.Policy[R]) (err error) {
	if v := reflect.ValueOf(p); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("failsafe: it is nil")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("failsafe: ToExecutor panics: %v", r)
		}
	}()
	var zero R
	e := p.ToExecutor(zero)
	type inner = func(failsafe.Execution[R]) *common.PolicyResult[R]
	if _, ok := e.(interface{ Apply(inner) inner }); !ok {
		return fmt.Errorf("failsafe: ToExecutor returns a %T, which is no executor of results of type %v", e, reflect.TypeFor[R]())
	}
	return nil
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
	defer cancel(nil) // also attempts that the policies do not wait for
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

// failed makes what a pipeline returns of an error of the executor.
func (s *Strategy[R]) failed(ctx context.Context, next pipeline.Next, value R, err error) (any, error) {
	if ctx.Err() != nil && (err == context.Canceled || err == context.DeadlineExceeded) { //nolint:errorlint // the bare error of the context, to which the cause is to be added
		return value, pipeline.ContextError(ctx)
	}
	if !isRejection(err) || errors.Is(err, pipeline.ErrRejected) {
		return value, err
	}
	rejected := &RejectedError{Source: next.Source(), Err: err, retryAfter: s.remainingDelay(err)}
	next.Report(ctx, pipeline.Event{Name: EventRejected, Severity: pipeline.SeverityError, Err: rejected})
	return nil, rejected
}
