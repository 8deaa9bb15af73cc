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

// EventRetry is the event of an attempt that will be followed by another, with
// its number and error, before the wait. Warning.
const EventRetry = "OnRetry"

// EventMaxRetryAfter is the event of a failure that is returned because it asks for
// a longer wait than [Options.MaxRetryAfter], with the attempt's number and error.
// Duration is the wait that the failure asks for. Warning.
const EventMaxRetryAfter = "OnMaxRetryAfter"

// A Strategy runs what comes after it again when it failed. It is safe for
// concurrent use and keeps nothing from one execution to the next.
type Strategy struct {
	options  Options
	problem  error
	observed bool // something wants to know of every execution, whatever comes of it
}

// New makes a retry strategy. A nil o means the defaults.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
	s.observed = s.options.Handle != nil || s.options.MaxDuration > 0 || s.options.Budget != nil
	return s
}

// Name returns [Options.Name], or "Retry".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in: New makes the same of
// them again.
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

// Execute runs next until an outcome is not to be retried, or no retry is left.
// It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.observed || next.Listening() {
		return s.executeObserved(ctx, next)
	}
	result, err := next.Run(ctx)
	if err == nil {
		return result, nil // the way that most executions go, kept short
	}
	e := execution{options: &s.options, next: next}
	return e.follow(ctx, outcome{result: result, err: err})
}

// executeObserved is Execute where somebody wants to know about the first
// attempt, whatever came of it.
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

// follow does about o what there is to do, up to the last outcome.
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
			return o.result, gaveUp(o, ErrMaxRetryAfter)
		}
		if reason := e.cannotSurvive(ctx, delay); reason != nil {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			return o.result, gaveUp(o, reason)
		}
		if e.options.Budget != nil && !e.options.Budget.TryAcquire(ctx) {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			e.report(ctx, o, budget.EventExhausted, 0)
			return o.result, gaveUp(o, budget.ErrExhausted)
		}
		if reason := e.wait(ctx, o, delay); reason != nil {
			if e.options.OnRetry != nil {
				o.result = nil // it was OnRetry's to close
			}
			return o.result, gaveUp(o, reason)
		}
	}
}

// wait tells of the retry that follows o, and waits for it. It returns why that is
// not made, or nil. A retry that is not made costs the budget nothing, also where a
// function of the options panics.
func (e *execution) wait(ctx context.Context, o outcome, delay time.Duration) (reason error) {
	if e.options.Budget != nil {
		reason = pipeline.ErrAborted // stays if it does not return
		defer func() {
			if reason != nil {
				budget.Refund(ctx, e.options.Budget)
			}
		}()
	}
	e.reportAttempt(ctx, &o, pipeline.SeverityWarning)
	e.announce(ctx, o, delay)
	if reason = e.cannotSurvive(ctx, delay); reason != nil { // announce may have taken its time
		return reason
	}
	return sleep(ctx, delay)
}

// handles reports whether an outcome is one to retry.
func (e *execution) handles(ctx context.Context, o outcome) bool {
	if e.options.Handle != nil {
		return e.options.Handle(o.result, o.err)
	}
	return o.err != nil && !judge.Ended(ctx, o.err) && mayRetry(o.err)
}

// mayRetry reports whether err lets itself be retried: its method Retryable, if it has one, returns true.
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
	began     time.Duration // on sinceStart's clock; only with MaxDuration
}

// An outcome is what came of one attempt.
type outcome struct {
	result  any
	err     error
	attempt int
	took    time.Duration // only if somebody listens
}

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

// retried is an attempt that the budget was charged for. If nothing was called, that costs it nothing.
func (e *execution) retried(ctx context.Context, number int) outcome {
	o := e.attempt(ctx, number)
	if e.options.Budget != nil && judge.NotCalled(o.err) {
		budget.Refund(ctx, e.options.Budget)
	}
	return o
}

// reportAttempt reports how an attempt ended. A severity above Information
// stands for one that was handled.
func (e *execution) reportAttempt(ctx context.Context, o *outcome, severity pipeline.Severity) {
	if !e.listening {
		return
	}
	e.next.Report(ctx, pipeline.Event{
		Name:     pipeline.EventExecutionAttempt,
		Severity: severity,
		Result:   o.result,
		Err:      o.err,
		Attempt:  o.attempt,
		Handled:  severity > pipeline.SeverityInformation,
		Duration: o.took,
	})
}

// report reports why there is no other attempt after o.
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

// announce tells who wants to know that there will be another attempt.
func (e *execution) announce(ctx context.Context, o outcome, delay time.Duration) {
	if e.listening {
		e.next.Report(ctx, pipeline.Event{
			Name:     EventRetry,
			Severity: pipeline.SeverityWarning,
			Result:   o.result,
			Err:      o.err,
			Attempt:  o.attempt,
		})
	}
	if e.options.OnRetry != nil {
		e.options.OnRetry(ctx, Attempt{
			Number: o.attempt,
			Delay:  delay,
			Result: o.result,
			Err:    o.err,
			Source: e.next.Source(),
		})
	}
}
