package retry

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
)

// ErrMaxDuration is joined with the last failure if [Options.MaxDuration] leaves no time for another attempt.
var ErrMaxDuration = errors.New("retry: the maximum duration leaves no time for another attempt")

// ErrMaxRetryAfter is joined with a failure that asks for a longer wait than [Options.MaxRetryAfter].
var ErrMaxRetryAfter = errors.New("retry: the failure asks for a longer wait than the maximum")

// delay returns how long to wait after o, and how much of that o asks for.
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
			wait, jitter = d, false // DelayFunc decides to the nanosecond
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

// cannotSurvive returns the reason why no attempt can follow a wait of delay, or nil. A wait that would end exactly at
// a limit is too long.
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

// sleep waits for d. If ctx ends before, it returns the ContextError.
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
