package hedge

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// EventHedging means that a hedge is about to start. Attempt is its number, 1 for the first. Result and Err are the
// outcome that was handled, if the hedge starts because of that. Its severity is Warning.
const EventHedging = "OnHedging"

// ErrLost is the [context.Cause] of an attempt that was abandoned because another one decided, and the Err of its
// ExecutionAttempt event.
var ErrLost = errors.New("hedge: another attempt decided")

// A Strategy makes more attempts beside one that takes long. Make one with [New]. It is safe for concurrent use, and
// keeps nothing from one execution to the next.
type Strategy struct {
	options Options
	problem error // what Validate returns
}

// New makes a hedging strategy. If o is nil, the defaults apply. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	return &Strategy{options: o.withDefaults(), problem: o.Validate()}
}

// Name returns [Options.Name], or "Hedging".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in. A strategy that [New] makes with them is equal to s.
func (s *Strategy) Options() Options { return s.options }

// Describe returns the [Options], and what [budget.Describe] returns of the Budget. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	return s.options, budget.Describe(s.options.Budget)
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error { return s.problem }

// Execute runs next until an outcome wins or all were handled. If an attempt takes long, others run beside it. Execute
// implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	if s.options.MaxHedges < 0 {
		return next.Run(ctx)
	}
	return newRace(ctx, next, &s.options).run()
}

// AttemptNumber returns the number of an attempt from its context: 0 for the first. For any other context it also
// returns 0. A callback can use it to call another server with each attempt.
func AttemptNumber(ctx context.Context) int {
	number, _ := ctx.Value(attemptKey{}).(int)
	return number
}

// attemptKey is the key of the number of the attempt.
type attemptKey struct{}

// withNumber returns a context whose AttemptNumber is number.
func withNumber(ctx context.Context, number int) context.Context {
	if AttemptNumber(ctx) == number { // the first attempt, unless this hedge is inside another
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, number) // an int below 256 becomes an any without an allocation
}

// Dispose converts dispose, which knows the type of the results, to the type of [Options.Dispose]. dispose is called
// with every result that is a T and not nil, whether it comes with an error or not.
func Dispose[T any](dispose func(T)) func(result any, err error) {
	return func(result any, _ error) {
		if v, ok := result.(T); ok && !isnil.Value(v) { // a callback that fails often returns a nil pointer with its error
			dispose(v)
		}
	}
}
