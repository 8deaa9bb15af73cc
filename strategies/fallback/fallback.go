package fallback

import (
	"context"
	"errors"
	"log/slog"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// EventFallback is the event of an outcome that is about to be replaced, with
// its result and error, before the action runs. Warning.
const EventFallback = "OnFallback"

// An Action finds something to put in the place of the outcome of an execution:
// result and err are what came out. What it returns is the new outcome. [Value] and
// [Func] make actions that know the type.
//
// An outcome that was handled for its result is the action's: what needs closing,
// the action closes.
type Action func(ctx context.Context, result any, err error) (any, error)

// Options say which outcomes are replaced. The zero Options are the defaults: every
// error is replaced except the end of the execution's own context.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "Fallback".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Handle reports whether an outcome is replaced. It is called for every outcome,
	// also for successes. If nil, every error is replaced except [context.Canceled], and
	// [context.DeadlineExceeded] once the execution's own context is done.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// OnFallback is called after the event and before the action.
	OnFallback func(ctx context.Context, o Outcome) `json:"-" yaml:"-"`
}

// An Outcome is what [Options.OnFallback] is told: what will be replaced.
type Outcome struct {
	Result any             // what came out
	Err    error           // what came out
	Source pipeline.Source // which pipeline and which strategy
}

// Value makes an action of a value that is always the same.
func Value[T any](v T) Action {
	var boxed any = v // once, and not for each execution
	return func(context.Context, any, error) (any, error) { return boxed, nil }
}

// Func makes an action of a function that knows the type. A result of another type,
// or none, it sees as the zero T.
func Func[T any](action func(ctx context.Context, result T, err error) (T, error)) Action {
	if action == nil {
		return nil // which New says
	}
	return func(ctx context.Context, result any, err error) (any, error) {
		v, _ := result.(T)
		return action(ctx, v, err)
	}
}

// Result makes an [Options.Handle] of a predicate that knows the type. A
// nil result is asked about as the zero T. A result of another type is handled
// only if it comes with an error that handle, given the zero T, wants handled.
// So T must be the type that [pipeline.ExecuteValue] is called for: with another,
// handle is never asked about a result. That is not an error, because one pipeline
// can run callbacks of several types.
func Result[T any](handle func(T, error) bool) func(any, error) bool {
	return func(result any, err error) bool {
		v, ok := result.(T)
		if !ok && result != nil && err == nil {
			return false
		}
		return handle(v, err)
	}
}

// A Strategy replaces outcomes. It is safe for concurrent use if its functions are,
// and keeps nothing from one execution to the next.
type Strategy struct {
	action  Action
	options Options
}

// New makes a fallback to what action returns. Without an action, making a pipeline
// of the strategy fails. A nil o means the defaults.
func New(action Action, o *Options) *Strategy {
	s := &Strategy{action: action}
	if o != nil {
		s.options = *o
	}
	if s.options.Name == "" {
		s.options.Name = "Fallback"
	}
	return s
}

// Name returns [Options.Name], or "Fallback".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options, with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Describe says what the strategy is made of: its [Options]. It is for
// [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) { return s.options, nil }

var errNilAction = errors.New("fallback: the action is nil")

// Validate returns what is wrong with what the strategy was made of, or nil.
func (s *Strategy) Validate() error {
	if s.action == nil {
		return errNilAction
	}
	return nil
}

// Execute runs next, and the action if the outcome is one to replace. It implements
// [pipeline.Strategy].
//
// The action runs also if the context has ended meanwhile: it may need no time.
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	result, err := next.Run(ctx)
	if !s.handles(ctx, result, err) {
		return result, err
	}
	next.Report(ctx, pipeline.Event{Name: EventFallback, Severity: pipeline.SeverityWarning, Result: result, Err: err})
	if s.options.OnFallback != nil {
		s.options.OnFallback(ctx, Outcome{Result: result, Err: err, Source: next.Source()})
	}
	return s.action(ctx, result, err)
}

// handles reports whether an outcome is one to replace.
func (s *Strategy) handles(ctx context.Context, result any, err error) bool {
	if s.options.Handle != nil {
		return s.options.Handle(result, err)
	}
	return err != nil && !judge.Ended(ctx, err)
}

// String returns what is replaced, without the Result: "orders/Fallback: replaced: boom".
func (o Outcome) String() string {
	text := "replaced"
	if source := o.Source.String(); source != "" {
		text = source + ": " + text
	}
	if o.Err != nil {
		text += ": " + o.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]. The Result, a value of the program's, is left out.
func (o Outcome) LogValue() slog.Value {
	return slog.GroupValue(slog.String("source", o.Source.String()), slog.Any("error", o.Err))
}
