package hedge

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// EventHedging is the event of a hedge that is about to start, with its number,
// 1 for the first, and the outcome that was handled, if that is why. Warning.
const EventHedging = "OnHedging"

// ErrLost is the [context.Cause] of an attempt that is no longer wanted, and the Err
// of its ExecutionAttempt event.
var ErrLost = errors.New("hedge: another attempt decided")

// A Strategy makes more attempts beside one that takes long. It is safe for
// concurrent use and keeps nothing from one execution to the next.
type Strategy struct {
	options Options
	problem error
	inTurn  bool
}

// New makes a hedging strategy. A nil o means the defaults.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
	s.inTurn = s.options.inTurn()
	return s
}

// Name returns [Options.Name], or "Hedging".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in: New makes the same of
// them again.
func (s *Strategy) Options() Options {
	o := s.options
	if o.MaxHedges == 0 {
		o.MaxHedges = -1
	}
	return o
}

// Describe says what the strategy is made of: its [Options], and how its Budget is
// just now, if that has [budget.Statistics]. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	if b, ok := s.options.Budget.(interface{ Statistics() budget.Statistics }); ok {
		state = b.Statistics()
	}
	return s.Options(), state
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error { return s.problem }

// Execute runs next until an outcome wins or all were handled, several times at
// once where it takes long. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	if s.inTurn {
		e := newExecution(ctx, next, &s.options)
		return e.inTurn()
	}
	return newRace(ctx, next, &s.options).run()
}

// inTurn makes one attempt after the other in the caller's goroutine.
func (e *execution) inTurn() (any, error) {
	defer e.finishInTurn()
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

func (e *execution) finishInTurn() {
	done := false
	defer e.disposeWinnerUnless(&done)
	e.settle()
	done = true
}

// settle does what is left to do when no attempt runs.
func (e *execution) settle() {
	defer e.refund()
	e.disposeFirst()
}

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
