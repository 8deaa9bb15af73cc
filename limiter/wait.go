package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/isnil"
)

const (
	// waitAtLeast keeps Wait from asking all the time, whatever a limiter says.
	waitAtLeast = time.Millisecond
	// waitAtMost is how long Wait sleeps before it asks again: limits may have been raised.
	waitAtMost = 10 * time.Second
	// firstBackoff and lastBackoff bound the wait where the limiter does not know how long it takes.
	firstBackoff, lastBackoff = 10 * time.Millisecond, time.Second
)

// Wait takes n permits of l and waits as long as necessary: it returns a granted lease or an error. Most workers
// should use it. Where a user waits for the answer, as in a request handler, call Acquire or TryAcquire and pass the
// rejection on.
//
// Wait calls l.Acquire, so it waits in l's queue where there is room. If l rejects, because the queue is full,
// there is none, or the limiter's store is away, Wait asks again after the lease's RetryAfter, but after 10 s at
// the latest. If RetryAfter is not known, it sleeps for a random time that grows to a second. Rejected callers
// have no order among them: give l a queue where the order matters.
//
// The error is ctx's, [ErrClosed], [ErrPermitCount] or another error of l. If ctx's deadline is before RetryAfter,
// Wait returns [context.DeadlineExceeded] at once, unless the limiter is unavailable: then RetryAfter is a guess.
func Wait(ctx context.Context, l Limiter, n int) (Lease, error) {
	if isnil.Value(l) {
		return Lease{}, optionsError("l", nil, "must not be nil")
	}
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		lease, err := l.Acquire(ctx, n)
		switch {
		case err != nil:
			lease.Refund() // a limiter should not grant with an error; one may
			return Lease{}, err
		case lease.Acquired():
			return lease, nil
		case lease.Reason() == ReasonClosed:
			return Lease{}, ErrClosed
		}
		d, known := lease.RetryAfter()
		if !known {
			d = backoff/2 + rand.N(backoff/2)
		} else if err := pointless(ctx, lease, d); err != nil {
			return Lease{}, err
		}
		if err := sleep(ctx, min(max(d, waitAtLeast), waitAtMost)); err != nil {
			return Lease{}, err
		}
	}
}

// pointless is the error of a wait that ctx does not outlast.
func pointless(ctx context.Context, l Lease, retryAfter time.Duration) error {
	deadline, ok := ctx.Deadline()
	if !ok || l.Reason() == ReasonUnavailable || retryAfter <= time.Until(deadline) {
		return nil
	}
	return fmt.Errorf("limiter: permits come in %v, after the context's deadline: %w", retryAfter, context.DeadlineExceeded)
}

// sleep waits for d, or returns the error of ctx if that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	done := ctx.Done()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-done:
		return contextError(ctx)
	}
}
