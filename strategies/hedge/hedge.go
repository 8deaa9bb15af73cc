package hedge

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// EventHedging is the event of a hedge that is about to start. Attempt is its number, 1 for the first. Result and Err
// are the outcome that was handled, if the hedge starts because of that. Warning.
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

// Options returns the options with the defaults filled in. New makes an equal strategy of them.
func (s *Strategy) Options() Options {
	o := s.options
	if o.MaxHedges == 0 {
		o.MaxHedges = -1
	}
	return o
}

// Describe returns the [Options], and the [budget.Statistics] of the Budget if it has some. It is for
// [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	if b, ok := s.options.Budget.(interface{ Statistics() budget.Statistics }); ok {
		state = b.Statistics()
	}
	return s.Options(), state
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error { return s.problem }

// Execute runs next until an outcome wins or all were handled, several times at once if an attempt takes long. It
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

// runSequentially makes one attempt after the other in the caller's goroutine.
func (e *execution) runSequentially() (any, error) {
	defer e.finishSequential()
	for {
		o := e.attempt()
		e.refundUncalled(&o)
		if !e.handles(&o) {
			e.win(&o)
			return o.result, o.err
		}
		if !e.handled(o, 0) {
			return e.allHandled()
		}
	}
}

// finishSequential disposes of the outcomes that Execute does not return.
func (e *execution) finishSequential() {
	done := false
	defer e.disposeWinnerUnless(&done)
	e.settle()
	done = true
}

// settle ends an execution of which no attempt runs any more.
func (e *execution) settle() {
	defer e.refund()
	e.disposeFirst()
}

// attempt makes the next attempt in the caller's goroutine.
func (e *execution) attempt() outcome {
	o := outcome{number: e.started}
	e.started++
	e.charged = false
	ctx := withNumber(e.ctx, o.number)
	if !e.listening {
		o.result, o.err = e.next.Run(ctx)
		return o
	}
	began := clock.Now()
	o.result, o.err = e.next.Run(ctx)
	o.took = clock.Now() - began
	return o
}
