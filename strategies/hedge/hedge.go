package hedge

import (
	"context"
	"errors"

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
	options    Options
	problem    error // what Validate returns
	sequential bool
}

// New makes a hedging strategy. If o is nil, it has the defaults. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
	s.sequential = s.options.sequential()
	return s
}

// Name returns [Options.Name], or "Hedging".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in. A strategy that [New] makes with them is equal to s.
func (s *Strategy) Options() Options { return s.options }

// Describe returns the [Options], and the [budget.Statistics] of the Budget if it has a method Statistics. It is for
// [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	if b, ok := s.options.Budget.(interface{ Statistics() budget.Statistics }); ok {
		state = b.Statistics()
	}
	return s.options, state
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error { return s.problem }

// Execute runs next until an outcome wins or all were handled. If an attempt takes long, others run beside it. Execute
// implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	if s.sequential {
		e := newExecution(ctx, next, &s.options)
		return e.runSequentially()
	}
	return newRace(ctx, next, &s.options).run()
}
