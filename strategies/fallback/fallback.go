package fallback

import (
	"cmp"
	"context"

	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// EventFallback is the event of an outcome that is about to be replaced, with its Result and Err, before the action
// runs. Warning.
const EventFallback = "OnFallback"

// An Action returns the outcome that replaces the outcome of an execution, which is result and err. [Value] and [Func]
// make actions that know the type of the results.
//
// If result holds a resource, such as the body of a response, the action closes it.
type Action func(ctx context.Context, result any, err error) (any, error)

// Options say which outcomes are replaced. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Fallback".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Handle reports whether an outcome is replaced. It is called for every outcome, also for successes. If nil, every
	// error is replaced except [context.Canceled], and [context.DeadlineExceeded] once the execution's own context is
	// done. [pipeline.HandleResult] makes one of a function that knows the type of the results.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// OnFallback, if it is not nil, is called with the event [EventFallback], before the action.
	OnFallback func(ctx context.Context, e pipeline.Event) `json:"-" yaml:"-"`
}

// Value makes an action that always returns v.
func Value[T any](v T) Action {
	var boxed any = v // one conversion for all executions
	return func(context.Context, any, error) (any, error) { return boxed, nil }
}

// Func makes an action of a function that knows the type of the results. For a result that is not a T, or nil, it is
// called with the zero T.
func Func[T any](action func(ctx context.Context, result T, err error) (T, error)) Action {
	if action == nil {
		return nil // so that Validate finds it
	}
	return func(ctx context.Context, result any, err error) (any, error) {
		v, _ := result.(T)
		return action(ctx, v, err)
	}
}

// A Strategy replaces outcomes. Make one with [New]. It is safe for concurrent use if its functions are, and keeps
// nothing from one execution to the next.
type Strategy struct {
	action  Action
	options Options
}

// New makes a fallback to what action returns. If action is nil, making a pipeline of the strategy fails. If o is nil, the
// defaults apply.
func New(action Action, o *Options) *Strategy {
	s := &Strategy{action: action, options: *cmp.Or(o, new(Options))}
	s.options.Name = cmp.Or(s.options.Name, "Fallback")
	return s
}

// Name returns [Options.Name], or "Fallback".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Describe returns the [Options]. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) { return s.options, nil }

// Validate returns a [weir.OptionsError] if the action is nil.
func (s *Strategy) Validate() error {
	var p validate.Problems
	if s.action == nil {
		p.Add("Action", nil, "must not be nil")
	}
	return p.Err("fallback")
}

// Execute runs next, and the action if the outcome is to be replaced. It implements [pipeline.Strategy].
//
// The action runs even if the context has ended, because it need not take time.
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	result, err := next.Run(ctx)
	if !judge.Handles(ctx, s.options.Handle, result, err) {
		return result, err
	}
	e := pipeline.Event{Name: EventFallback, Severity: pipeline.SeverityWarning, Result: result, Err: err}
	next.Announce(ctx, e, s.options.OnFallback)
	holding.Release(ctx, result) // before the action, which can need it
	return s.action(ctx, result, err)
}
