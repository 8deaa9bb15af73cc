package retry

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// EventRetry means that another attempt follows. It has the Attempt, Result and Err of the attempt that is retried,
// and comes before the wait. Its severity is Warning.
const EventRetry = "OnRetry"

// EventMaxRetryAfter means that a failure is returned because it asks for a longer wait than [Options.MaxRetryAfter].
// It has the Attempt, Result and Err of the failure. Duration is the wait that the failure asks for. Its severity is
// Warning.
const EventMaxRetryAfter = "OnMaxRetryAfter"

// ErrMaxDuration is joined with the last failure if [Options.MaxDuration] leaves no time for another attempt.
var ErrMaxDuration = errors.New("retry: the maximum duration leaves no time for another attempt")

// ErrMaxRetryAfter is joined with a failure that asks for a longer wait than [Options.MaxRetryAfter].
var ErrMaxRetryAfter = errors.New("retry: the failure asks for a longer wait than the maximum")

// A Strategy repeats what comes after it in the pipeline if that has failed. Make one with [New]. It is safe for
// concurrent use, and keeps nothing from one execution to the next.
type Strategy struct {
	options  Options
	problem  error // what Validate returns
	slowPath bool  // there is a Handle, MaxDuration or Budget, so even a successful first attempt needs executeSlow
}

// New makes a retry strategy. If o is nil, it has the defaults. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
	s.slowPath = s.options.Handle != nil || s.options.MaxDuration > 0 || s.options.Budget != nil
	return s
}

// Name returns [Options.Name], or "Retry".
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

// Execute runs next until an outcome is not to be retried, or no retry is left. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.slowPath || next.ListeningToAttempts() {
		return s.executeSlow(ctx, next)
	}
	result, err := next.Run(ctx)
	if err == nil {
		return result, nil // most executions end here
	}
	e := execution{options: &s.options, next: next}
	return e.retry(ctx, outcome{result: result, err: err})
}

// executeSlow is Execute if a successful first attempt is reported, handled, timed, or counted by the budget.
func (s *Strategy) executeSlow(ctx context.Context, next pipeline.Next) (any, error) {
	e := execution{options: &s.options, next: next, timed: next.ListeningToAttempts()}
	if s.options.MaxDuration > 0 {
		e.began = clock.Now()
	}
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	o := e.attempt(ctx, 0)
	if o.err == nil && s.options.Handle == nil {
		e.reportAttempt(ctx, &o, pipeline.SeverityInformation)
		return o.result, nil
	}
	return e.retry(ctx, o)
}
