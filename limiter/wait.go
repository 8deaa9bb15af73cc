package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/isnil"
)

const (
	// waitAtLeast keeps Wait from asking without a pause, whatever a limiter answers.
	waitAtLeast = time.Millisecond
	// waitAtMost is how long Wait sleeps before it asks again: the limits may have been raised.
	waitAtMost = 10 * time.Second
	// firstBackoff and lastBackoff bound the sleep if RetryAfter is not known.
	firstBackoff, lastBackoff = 10 * time.Millisecond, time.Second
)

// Wait takes n permits of l and waits as long as necessary: it returns a granted lease or an error. Most workers should
// use it. If a user waits for the answer, as in a request handler, call Acquire or TryAcquire and pass the rejection
// on.
//
// Wait calls l.Acquire, so it waits in l's queue if there is room. If l rejects, because its queue is full or missing
// or because its store does not answer, Wait asks again after the lease's RetryAfter, but after 10 s at the latest. If
// RetryAfter is not known, Wait sleeps for a random time that grows to a second. Rejected callers come back in no
// order: if the order matters, give l a queue.
//
// The error is ctx's, [ErrClosed], [ErrPermitCount], another error of l, or a [weir.OptionsError] if l is nil. If ctx's
// deadline comes before the RetryAfter of a rejection has passed, Wait returns [context.DeadlineExceeded] at once, unless the limiter
// is unavailable: then RetryAfter is a guess. A caller that waits in l's queue waits there until the deadline.
func Wait(ctx context.Context, l Limiter, n int) (Lease, error) {
	if isnil.Value(l) {
		return Lease{}, optionsError("l", nil, "must not be nil")
	}
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		lease, err := l.Acquire(ctx, n)
		switch {
		case err != nil:
			lease.Refund() // in case a limiter grants with an error
			return Lease{}, err
		case lease.Acquired():
			return lease, nil
		case lease.Reason() == ReasonClosed:
			return Lease{}, ErrClosed
		}
		d, known := lease.RetryAfter()
		if !known {
			d = backoff/2 + deterministic.UpTo(ctx, backoff/2)
		} else if err := deadlineError(ctx, lease, d); err != nil {
			return Lease{}, err
		}
		clock.Sleep(ctx, min(max(d, waitAtLeast), waitAtMost))
		if ctx.Err() != nil {
			return Lease{}, ctxerr.Of(ctx)
		}
	}
}

// deadlineError returns the error of a wait that lasts longer than ctx, or nil.
func deadlineError(ctx context.Context, l Lease, retryAfter time.Duration) error {
	deadline, ok := ctx.Deadline()
	if !ok || l.Reason() == ReasonUnavailable || retryAfter <= time.Until(deadline) {
		return nil
	}
	return fmt.Errorf("limiter: permits come in %v, after the context's deadline: %w", retryAfter, context.DeadlineExceeded)
}
