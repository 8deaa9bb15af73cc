package retry

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// EventRetry means that another attempt follows. It has the Attempt, Result and Err of the attempt that is retried.
// Duration is the wait that comes now. Its severity is Warning.
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
	options Options
	problem error // what Validate returns
}

// New makes a retry strategy. If o is nil, the defaults apply. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	return &Strategy{options: o.withDefaults(), problem: o.Validate()}
}

// Name returns [Options.Name], or "Retry".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in. A strategy that [New] makes with them is equal to s.
func (s *Strategy) Options() Options { return s.options }

// Describe returns the [Options], and what [budget.Describe] returns of the Budget. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	return s.options, budget.Describe(s.options.Budget)
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error { return s.problem }

// Execute runs next until an outcome is not to be retried, or no retry is left. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	e := execution{options: &s.options, next: next}
	if s.options.MaxDuration > 0 {
		e.began = clock.Now()
	}
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	result, took, err := next.RunTimed(ctx)
	if err == nil && s.options.Handle == nil && !next.ListeningToAttempts() {
		return result, nil // most executions end here
	}
	return e.retry(ctx, pipeline.Event{Result: result, Err: err, Duration: took})
}
