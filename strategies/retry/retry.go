package retry

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
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
type Strategy struct{ options Options }

// New makes a retry strategy. If o is nil, the defaults apply. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	return &Strategy{options: o.withDefaults()}
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
func (s *Strategy) Validate() error { return s.options.Validate() }

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

// An execution is one call of Execute. It stays on the stack. The outcome of an attempt is an event with its Result, Err,
// Attempt, and how long it took if a Listener wants to know.
type execution struct {
	options *Options
	next    pipeline.Next
	began   time.Duration // by clock.Now; only with MaxDuration
}

// gaveUp returns the last outcome, its error joined with the reason why no retry follows.
func gaveUp(o pipeline.Event, reason error) (any, error) {
	return o.Result, judge.GaveUp("retry", o.Err, o.Attempt+1, reason)
}

// retry makes retries after o, the outcome of the first attempt, and returns the last outcome.
func (e *execution) retry(ctx context.Context, o pipeline.Event) (any, error) {
	for {
		if !e.handles(ctx, o) {
			e.reportAttempt(ctx, o, pipeline.SeverityInformation)
			return o.Result, o.Err
		}
		if o.Attempt >= e.options.MaxRetries {
			e.reportAttempt(ctx, o, pipeline.SeverityError)
			return o.Result, o.Err
		}
		delay, asked := e.delay(ctx, o)
		if limit := e.options.MaxRetryAfter; asked > limit && limit >= 0 {
			e.reportAttempt(ctx, o, pipeline.SeverityError)
			e.next.Report(ctx, warning(EventMaxRetryAfter, o, asked))
			return gaveUp(o, ErrMaxRetryAfter)
		}
		if reason := e.noTimeFor(ctx, delay); reason != nil {
			e.reportAttempt(ctx, o, pipeline.SeverityError)
			return gaveUp(o, reason)
		}
		if e.options.Budget != nil && !e.options.Budget.TryAcquire(ctx) {
			e.reportAttempt(ctx, o, pipeline.SeverityError)
			e.next.Report(ctx, warning(budget.EventExhausted, o, 0))
			return gaveUp(o, budget.ErrExhausted)
		}
		if reason := e.wait(ctx, o, delay); reason != nil {
			if e.options.OnRetry != nil {
				o.Result = nil // OnRetry can have closed it
			}
			return gaveUp(o, reason)
		}
		o = pipeline.Event{Attempt: o.Attempt + 1}
		o.Result, o.Duration, o.Err = e.next.RunTimed(ctx)
		if e.options.Budget != nil && pipeline.NotCalled(o.Err) {
			budget.Refund(ctx, e.options.Budget)
		}
	}
}

// handles reports whether an outcome is to be retried.
func (e *execution) handles(ctx context.Context, o pipeline.Event) bool {
	if !judge.Handles(ctx, e.options.Handle, o.Result, o.Err) {
		return false
	}
	retryable, known := pipeline.Retryable(o.Err)
	return retryable || !known || e.options.Handle != nil
}

// delay returns how long to wait after o, and the wait that o asks for: 0 if none, or if IgnoreRetryAfter is set.
func (e *execution) delay(ctx context.Context, o pipeline.Event) (wait, asked time.Duration) {
	options := e.options
	backoff, jitter := options.Backoff.Delay(options.Delay, o.Attempt), options.Jitter
	if options.MaxDelay > 0 {
		backoff = min(backoff, options.MaxDelay)
	}
	wait = backoff
	if jitter {
		wait = options.Backoff.spread(ctx, backoff)
		if options.MaxDelay > 0 {
			wait = min(wait, options.MaxDelay)
		}
	}
	if options.DelayFunc != nil {
		if d, ok := options.DelayFunc(ctx, o.Attempt, o.Result, o.Err); ok && d >= 0 {
			wait, jitter = d, false // no jitter on what DelayFunc returns
		}
	}
	if options.IgnoreRetryAfter {
		return wait, 0
	}
	asked, ok := pipeline.RetryAfter(o.Err)
	if !ok {
		return wait, 0
	}
	if jitter {
		return max(wait, saturate.Add(asked, upTo(ctx, backoff/4))), asked
	}
	return max(wait, asked), asked
}

// wait reports the retry that follows o, and waits for it. It returns the reason why the retry is not made, or nil. A
// retry that is not made costs the budget nothing, even if a function of the options panics.
func (e *execution) wait(ctx context.Context, o pipeline.Event, delay time.Duration) (reason error) {
	if e.options.Budget != nil {
		reason = pipeline.ErrAborted // stays if a function of the options panics
		defer func() {
			if reason != nil {
				budget.Refund(ctx, e.options.Budget)
			}
		}()
	}
	e.reportAttempt(ctx, o, pipeline.SeverityWarning)
	e.next.Announce(ctx, warning(EventRetry, o, delay), e.options.OnRetry)
	// Before the wait, in which other executions can use what the attempt held.
	holding.Drop(ctx, o.Result)
	if reason = e.noTimeFor(ctx, delay); reason != nil { // the listener and OnRetry can have taken long
		return reason
	}
	clock.Sleep(ctx, delay)
	return pipeline.ContextError(ctx)
}

// noTimeFor returns the reason why no attempt can follow a wait of delay, or nil. A wait that would end exactly at
// a limit is too long.
func (e *execution) noTimeFor(ctx context.Context, delay time.Duration) error {
	if err := pipeline.ContextError(ctx); err != nil {
		return err
	}
	if limit := e.options.MaxDuration; limit > 0 && delay >= limit-(clock.Now()-e.began) {
		return ErrMaxDuration
	}
	if delay <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && delay >= time.Until(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// reportAttempt reports the outcome of an attempt.
func (e *execution) reportAttempt(ctx context.Context, o pipeline.Event, severity pipeline.Severity) {
	o.Severity = severity
	e.next.ReportAttempt(ctx, o)
}

// warning returns an event about o: that a retry follows, or why none does.
func warning(name string, o pipeline.Event, d time.Duration) pipeline.Event {
	o.Name, o.Severity, o.Duration = name, pipeline.SeverityWarning, d
	return o
}
