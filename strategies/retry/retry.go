package retry

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// EventRetry is the event of an attempt that will be followed by another, with its Attempt, Result and Err, before the
// wait. Warning.
const EventRetry = "OnRetry"

// EventMaxRetryAfter is the event of a failure that is returned because it asks for a longer wait than
// [Options.MaxRetryAfter], with its Attempt, Result and Err. Duration is the wait that the failure asks for. Warning.
const EventMaxRetryAfter = "OnMaxRetryAfter"

// A Strategy runs what comes after it again if it failed. Make one with [New]. It is safe for concurrent use, and keeps
// nothing from one execution to the next.
type Strategy struct {
	options  Options
	problem  error
	observed bool // Handle, MaxDuration or Budget need the first attempt even if it succeeds
}

// New makes a retry strategy. If o is nil, it has the defaults. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
	s.observed = s.options.Handle != nil || s.options.MaxDuration > 0 || s.options.Budget != nil
	return s
}

// Name returns [Options.Name], or "Retry".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in. New makes an equal strategy of them.
func (s *Strategy) Options() Options {
	o := s.options
	if o.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	if o.Delay == 0 {
		o.Delay = -1
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

// Execute runs next until an outcome is not to be retried, or no retry is left. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.observed || next.Listening() {
		return s.executeObserved(ctx, next)
	}
	result, err := next.Run(ctx)
	if err == nil {
		return result, nil // most executions end here
	}
	e := execution{options: &s.options, next: next}
	return e.follow(ctx, outcome{result: result, err: err})
}

// executeObserved is Execute if the strategy is observed or there is a listener.
func (s *Strategy) executeObserved(ctx context.Context, next pipeline.Next) (any, error) {
	e := execution{options: &s.options, next: next, listening: next.Listening()}
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
	return e.follow(ctx, o)
}

// follow makes the retries that follow o, and returns the last outcome.
func (e *execution) follow(ctx context.Context, o outcome) (any, error) {
	for ; ; o = e.retried(ctx, o.attempt+1) {
		if !e.handles(ctx, o) {
			e.reportAttempt(ctx, &o, pipeline.SeverityInformation)
			return o.result, o.err
		}
		if o.attempt >= e.options.MaxRetries {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			return o.result, o.err
		}
		delay, asked := e.delay(ctx, o)
		if longest := e.options.MaxRetryAfter; asked > longest && longest >= 0 {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			e.report(ctx, o, EventMaxRetryAfter, asked)
			return o.result, o.gaveUp(ErrMaxRetryAfter)
		}
		if reason := e.cannotSurvive(ctx, delay); reason != nil {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			return o.result, o.gaveUp(reason)
		}
		if e.options.Budget != nil && !e.options.Budget.TryAcquire(ctx) {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			e.report(ctx, o, budget.EventExhausted, 0)
			return o.result, o.gaveUp(budget.ErrExhausted)
		}
		if reason := e.wait(ctx, o, delay); reason != nil {
			if e.options.OnRetry != nil {
				o.result = nil // OnRetry can have closed it
			}
			return o.result, o.gaveUp(reason)
		}
	}
}

// wait reports the retry that follows o, and waits for it. It returns the reason why the retry is not made, or nil. A
// retry that is not made costs the budget nothing, even if a function of the options panics.
func (e *execution) wait(ctx context.Context, o outcome, delay time.Duration) (reason error) {
	if e.options.Budget != nil {
		reason = pipeline.ErrAborted // stays if a function of the options panics
		defer func() {
			if reason != nil {
				budget.Refund(ctx, e.options.Budget)
			}
		}()
	}
	e.reportAttempt(ctx, &o, pipeline.SeverityWarning)
	e.announce(ctx, o, delay)
	if reason = e.cannotSurvive(ctx, delay); reason != nil { // announce can have taken long
		return reason
	}
	return sleep(ctx, delay)
}

// handles reports whether an outcome is to be retried.
func (e *execution) handles(ctx context.Context, o outcome) bool {
	if e.options.Handle != nil {
		return e.options.Handle(o.result, o.err)
	}
	return o.err != nil && !judge.Ended(ctx, o.err) && mayRetry(o.err)
}

// mayRetry returns what the method Retryable of err returns, or true if it has none.
func mayRetry(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Retryable() bool
	}](err)
	return !ok || e.Retryable()
}

// An execution is one call of Execute. It stays on the stack.
type execution struct {
	options   *Options
	next      pipeline.Next
	listening bool
	began     time.Duration // by clock.Now; only with MaxDuration
}

// An outcome is the outcome of one attempt.
type outcome struct {
	result  any
	err     error
	attempt int           // 0 for the first
	took    time.Duration // only if there is a listener
}

// gaveUp returns the error of an execution that ends with o for that reason.
func (o *outcome) gaveUp(reason error) error {
	return judge.GaveUp("retry", o.err, o.attempt+1, reason)
}

// attempt makes the attempt of that number.
func (e *execution) attempt(ctx context.Context, number int) outcome {
	o := outcome{attempt: number}
	if !e.listening {
		o.result, o.err = e.next.Run(ctx)
		return o
	}
	began := clock.Now()
	o.result, o.err = e.next.Run(ctx)
	o.took = clock.Now() - began
	return o
}

// retried makes an attempt that was taken from the budget, and gives it back if nothing was called.
func (e *execution) retried(ctx context.Context, number int) outcome {
	o := e.attempt(ctx, number)
	if e.options.Budget != nil && judge.NotCalled(o.err) {
		budget.Refund(ctx, e.options.Budget)
	}
	return o
}

// reportAttempt reports the outcome of an attempt, see [judge.ReportAttempt].
func (e *execution) reportAttempt(ctx context.Context, o *outcome, severity pipeline.Severity) {
	if e.listening {
		judge.ReportAttempt(ctx, e.next, pipeline.Event{
			Severity: severity, Result: o.result, Err: o.err, Attempt: o.attempt, Duration: o.took,
		})
	}
}

// report reports a warning about o: that a retry follows, or why none does.
func (e *execution) report(ctx context.Context, o outcome, event string, d time.Duration) {
	if e.listening {
		e.next.Report(ctx, pipeline.Event{
			Name:     event,
			Severity: pipeline.SeverityWarning,
			Result:   o.result,
			Err:      o.err,
			Attempt:  o.attempt,
			Duration: d,
		})
	}
}

// announce reports the retry that follows o, and calls OnRetry.
func (e *execution) announce(ctx context.Context, o outcome, delay time.Duration) {
	e.report(ctx, o, EventRetry, 0)
	if e.options.OnRetry != nil {
		e.options.OnRetry(ctx, Attempt{Number: o.attempt, Delay: delay, Result: o.result, Err: o.err, Source: e.next.Source()})
	}
}
