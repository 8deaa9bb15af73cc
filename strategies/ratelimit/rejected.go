package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// A RejectedError is the error of an execution that a limiter rejected. It matches [pipeline.ErrRejected].
type RejectedError struct {
	// Reason is the limiter's reason, or "" if there were too few permits and no other reason.
	Reason string
	// Source is the strategy that rejected, and its pipeline.
	Source pipeline.Source
	// Lease is the limiter's answer.
	Lease limiter.Lease
	// Shadow is true if the execution goes on all the same, as with [Options.Shadow], or with the FailOpen of a server's policy.
	Shadow bool
}

// Error returns a text with the Source and the Lease:
//
//	ratelimit: orders/RateLimiter: rejected: no permit free, retry after 4s
func (e *RejectedError) Error() string {
	return "ratelimit: " + judge.Text(e.Source, e.Lease.String(), nil)
}

// Is reports whether target is [pipeline.ErrRejected].
func (e *RejectedError) Is(target error) bool { return target == pipeline.ErrRejected }

// NotCalled returns true unless Shadow is set: the limiter did not let the call through. A circuit breaker outside does not
// count the rejection.
func (e *RejectedError) NotCalled() bool { return !e.Shadow }

// RetryAfter returns how long to wait before the next attempt; ok is false if the limiter does not know. See
// [pipeline.RetryAfter].
func (e *RejectedError) RetryAfter() (d time.Duration, ok bool) {
	d, _ = e.Lease.RetryAfter()
	return max(d, 0), d > 0
}

// noPermit returns the error of an execution for which a limiter returned err, so that nothing was called. The text says
// if the limiter returned the error of the context, which ended before there was a permit.
func noPermit(ctx context.Context, source pipeline.Source, err error) error {
	what := ""
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		what = "no permit before the context ended: "
	}
	explained := judge.Explained(fmt.Errorf("ratelimit: %v: %s%w", source, what, err), err, true)
	if errors.Is(err, limiter.ErrPermitCount) {
		return permitCountError{explained}
	}
	return explained
}

// A permitCountError is the error of an execution that costs more than the limiter could ever grant: no retry repeats it.
type permitCountError struct{ error }

func (e permitCountError) Unwrap() error { return e.error }

func (permitCountError) Retryable() bool { return false }
