package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ctxerr"
)

// Errors of every limiter in this package. They are wrapped in a text with the details: compare with [errors.Is].
var (
	// ErrClosed is returned by TryAcquire, Acquire, Charge and Reconfigure of a closed limiter.
	ErrClosed = errors.New("limiter: closed")
	// ErrInvalidOptions is [weir.ErrInvalidOptions]. Constructors and Reconfigure return a [weir.OptionsError], which
	// lists every field that is wrong and what would be right.
	ErrInvalidOptions = weir.ErrInvalidOptions
	// ErrPermitCount is returned for a negative number of permits, and for one above what the limiter could ever grant.
	ErrPermitCount = errors.New("limiter: permit count out of range")
	// ErrPartitionLimit is returned by [PartitionedLimiter.Charge] for a new key if MaxPartitions other keys are in use.
	// TryAcquire and Acquire do not return it: they reject the key with [ReasonPartitionLimit].
	ErrPartitionLimit = errors.New("limiter: partition limit reached")
)

// The reasons that this package's limiters give for a rejection; see [Lease.Reason]. A TryAcquire that found too few
// permits gives none.
const (
	// ReasonNoPermit: Acquire found too few permits, and the limiter has no queue, because its QueueLimit is 0.
	ReasonNoPermit = "no permit free"
	// ReasonQueueLimit: the queue had no room for the waiter, or newer waiters took its room.
	ReasonQueueLimit = "queue limit reached"
	// ReasonLimitLowered: a Reconfigure set a limit below what the waiter asks for.
	ReasonLimitLowered = "limit lowered"
	// ReasonClosed: the limiter was closed while the caller waited.
	ReasonClosed = "limiter closed"
	// ReasonPartitionLimit: the key is new, and MaxPartitions other keys are in use; see [PartitionedOptions].
	ReasonPartitionLimit = "partition limit reached"
	// ReasonUnavailable: the permits are kept elsewhere, in a store that did not answer. The limiters of package store
	// give it, and none of this package's.
	ReasonUnavailable = "limiter unavailable"
)

// The metadata of rejections is made once, so that rejecting allocates nothing.
var (
	noReason       *metadata
	noPermit       = &metadata{name: ReasonKey.name, value: ReasonNoPermit}
	queueLimit     = &metadata{name: ReasonKey.name, value: ReasonQueueLimit}
	limitLowered   = &metadata{name: ReasonKey.name, value: ReasonLimitLowered}
	limiterClosed  = &metadata{name: ReasonKey.name, value: ReasonClosed}
	partitionLimit = &metadata{name: ReasonKey.name, value: ReasonPartitionLimit}
)

// notMadeText is the error text of a limiter whose limit is 0: no constructor makes one.
const notMadeText = "the limiter is a zero value; make it with its constructor, such as NewTokenBucket"

// permitCountError returns the error of a request for n permits that are out of range.
func permitCountError(n int, limit int64) error {
	if n < 0 {
		return fmt.Errorf("%w: %d is negative", ErrPermitCount, n)
	}
	if limit == 0 {
		return fmt.Errorf("%w: %s", ErrPermitCount, notMadeText)
	}
	return fmt.Errorf("%w: %d is above the limit of %d", ErrPermitCount, n, limit)
}

// argumentError returns the error that a limiter returns before it looks at its permits, or nil.
func argumentError(ctx context.Context, n int, wait bool) error {
	done := ctx.Err() != nil
	switch {
	case done && (wait || n >= 0):
		return ctxerr.Of(ctx)
	case n < 0:
		return permitCountError(n, 0)
	}
	return nil
}
