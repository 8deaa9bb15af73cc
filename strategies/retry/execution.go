package retry

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// An execution is one call of Execute. It stays on the stack.
type execution struct {
	options *Options
	next    pipeline.Next
	timed   bool          // a listener wants the attempts and how long they took
	began   time.Duration // by clock.Now; only with MaxDuration
}

// An outcome is the outcome of one attempt.
type outcome struct {
	result  any
	err     error
	attempt int           // 0 for the first
	took    time.Duration // only if there is a listener
}

// gaveUp returns the error of an execution whose last outcome is o, joined with the reason why no retry follows.
func (o *outcome) gaveUp(reason error) error {
	return judge.GaveUp("retry", o.err, o.attempt+1, reason)
}

// attempt makes the attempt of that number.
func (e *execution) attempt(ctx context.Context, number int) outcome {
	o := outcome{attempt: number}
	if !e.timed {
		o.result, o.err = e.next.Run(ctx)
		return o
	}
	began := clock.Now()
	o.result, o.err = e.next.Run(ctx)
	o.took = clock.Now() - began
	return o
}

// retry makes retries after o, the outcome of the first attempt, and returns the last outcome.
func (e *execution) retry(ctx context.Context, o outcome) (any, error) {
	for {
		if !e.handles(ctx, o) {
			e.reportAttempt(ctx, &o, pipeline.SeverityInformation)
			return o.result, o.err
		}
		if o.attempt >= e.options.MaxRetries {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			return o.result, o.err
		}
		delay, asked := e.delay(ctx, o)
		if limit := e.options.MaxRetryAfter; asked > limit && limit >= 0 {
			e.reportAttempt(ctx, &o, pipeline.SeverityError)
			e.report(ctx, o, EventMaxRetryAfter, asked)
			return o.result, o.gaveUp(ErrMaxRetryAfter)
		}
		if reason := e.noTimeFor(ctx, delay); reason != nil {
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
		o = e.attempt(ctx, o.attempt+1)
		if e.options.Budget != nil && pipeline.NotCalled(o.err) {
			budget.Refund(ctx, e.options.Budget)
		}
	}
}

// handles reports whether an outcome is to be retried.
func (e *execution) handles(ctx context.Context, o outcome) bool {
	if e.options.Handle != nil {
		return e.options.Handle(o.result, o.err)
	}
	if o.err == nil || judge.Ended(ctx, o.err) {
		return false
	}
	retryable, known := pipeline.Retryable(o.err)
	return retryable || !known
}

// delay returns how long to wait after o, and the wait that o asks for: 0 if none, or if IgnoreRetryAfter is set.
func (e *execution) delay(ctx context.Context, o outcome) (wait, asked time.Duration) {
	options := e.options
	backoff, jitter := options.Backoff.delay(options.Delay, o.attempt), options.Jitter
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
		if d, ok := options.DelayFunc(ctx, o.attempt, o.result, o.err); ok && d >= 0 {
			wait, jitter = d, false // no jitter on what DelayFunc returns
		}
	}
	if options.IgnoreRetryAfter {
		return wait, 0
	}
	asked, ok := pipeline.RetryAfter(o.err)
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
	e.report(ctx, o, EventRetry, 0)
	if e.options.OnRetry != nil {
		e.options.OnRetry(ctx, Attempt{Number: o.attempt, Delay: delay, Result: o.result, Err: o.err, Source: e.next.Source()})
	}
	// Before the wait, in which other executions can use what the attempt held.
	holding.Drop(ctx, o.result)
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

// reportAttempt reports the outcome of an attempt, see [judge.ReportAttempt].
func (e *execution) reportAttempt(ctx context.Context, o *outcome, severity pipeline.Severity) {
	if e.timed {
		judge.ReportAttempt(ctx, e.next, pipeline.Event{
			Severity: severity, Result: o.result, Err: o.err, Attempt: o.attempt, Duration: o.took,
		})
	}
}

// report reports a warning about o: that a retry follows, or why none does.
func (e *execution) report(ctx context.Context, o outcome, event string, d time.Duration) {
	if e.next.Listening() {
		e.next.Report(ctx, pipeline.Event{
			Name: event, Severity: pipeline.SeverityWarning, Result: o.result, Err: o.err, Attempt: o.attempt, Duration: d,
		})
	}
}
