package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// ErrMaxDuration is joined with the last failure where [Options.MaxDuration]
// leaves no time for another attempt.
var ErrMaxDuration = errors.New("retry: the maximum duration leaves no time for another attempt")

// ErrMaxRetryAfter is joined with a failure that asks for a longer wait than
// [Options.MaxRetryAfter].
var ErrMaxRetryAfter = errors.New("retry: the failure asks for a longer wait than the maximum")

// delay returns how long to wait after o, and what part of that o asks for; 0: it
// does not.
func (e *execution) delay(ctx context.Context, o outcome) (wait, asked time.Duration) {
	options := e.options
	backoff, jitter := options.Backoff.delay(options.Delay, o.attempt), options.Jitter
	if options.MaxDelay > 0 {
		backoff = min(backoff, options.MaxDelay)
	}
	wait = backoff
	if jitter {
		wait = options.Backoff.spread(backoff)
		if options.MaxDelay > 0 {
			wait = min(wait, options.MaxDelay)
		}
	}
	if options.DelayFunc != nil {
		if d, ok := options.DelayFunc(ctx, o.attempt, o.result, o.err); ok && d >= 0 {
			wait, jitter = d, false // what was asked for, to the nanosecond
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
		return max(wait, saturate.Add(asked, upTo(backoff/4))), asked
	}
	return max(wait, asked), asked
}

// cannotSurvive returns why there is no use in waiting for delay, or nil. A wait
// that would end just at a limit is of no use either.
func (e *execution) cannotSurvive(ctx context.Context, delay time.Duration) error {
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

// sleep waits for d and returns nil, or why the context ended meanwhile.
func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return pipeline.ContextError(ctx)
}

// gaveUp joins the last failure with the reason why it stays the last.
func gaveUp(o outcome, reason error) error {
	if o.err == nil { // a result that was not wanted
		return fmt.Errorf("retry: gave up after attempt %d: %w", o.attempt+1, reason)
	}
	if errors.Is(o.err, reason) {
		return o.err
	}
	return judge.GaveUp("retry", o.err, o.attempt+1, reason)
}
