package limiter

import (
	"context"
	"time"

	"github.com/weir-go/weir/rate"
)

// A Limiter decides whether work can go ahead now, waits for its turn, or is rejected. Any type with these two methods
// is a Limiter: this package's, the program's own, or one whose state is on another machine.
//
// A rejection is a Lease that is not acquired, with a nil error. An error means that there was no decision: n is out of
// range ([ErrPermitCount]), the limiter is closed ([ErrClosed]), or ctx ended.
type Limiter interface {
	// TryAcquire takes n permits if they are free. It never queues. If n is 0, it reports whether a permit is free, and
	// takes none.
	TryAcquire(ctx context.Context, n int) (Lease, error)

	// Acquire takes n permits, and waits for them in the limiter's queue if there is room. If n is 0, it waits until a
	// permit is free, and takes none.
	Acquire(ctx context.Context, n int) (Lease, error)
}

// A Configurable is a [Limiter] whose limits are known and can be changed while it is used. All limiters of this package that
// have limits are Configurable, and so are the limiters of package store.
type Configurable interface {
	Limiter
	// Limits returns the limits in force.
	Limits() rate.Limits
	// Reconfigure changes the limits. What was granted stays granted. The error is a [weir.OptionsError], also if the
	// limiter cannot have options of that kind, or [ErrClosed], and then nothing has changed.
	Reconfigure(o Options) error
}

// A StatisticsProvider is a [Limiter] that has figures about itself.
type StatisticsProvider interface {
	Statistics() Statistics
}

// An idler is a custom.Idler.
type idler interface {
	IdleDuration() (idle time.Duration, ok bool)
}

// A Peeker is a [Limiter] that can say what it would answer. All limiters of this package are Peekers, a [Chained] limiter
// if its members are, and so are the limiters of package store.
type Peeker interface {
	// Peek returns what TryAcquire(ctx, n) would return now. It takes nothing, counts nothing, and changes no later
	// answer, statistics or idle duration. The Lease holds nothing: Acquired reports whether the permits would be
	// granted, and RetryAfter and Reason are those of the rejection. If n is 0, Peek says whether one permit is free, as
	// TryAcquire does. The error is [errors.ErrUnsupported] if a part of the limiter is no Peeker.
	Peek(ctx context.Context, n int) (Lease, error)
}

// A PartitionedPeeker is a [Partitioned] limiter that can say what it would answer.
type PartitionedPeeker[R any] interface {
	// Peek is that of [Peeker] for the resource's limiter. It makes no partition.
	Peek(ctx context.Context, resource R, n int) (Lease, error)
}

// A Level says how many permits a limiter has at a moment. If a method returns an error, its Level is zero and means
// nothing.
type Level struct {
	// Remaining is how many permits are left. It is below 0 if more were charged than were free, or if a limit was
	// lowered below the number of permits taken.
	Remaining int64
	// Full is the time until all permits are back if no more are taken, not even by callers in the queue. It is 0 if
	// none is missing.
	Full time.Duration
}

// A Charger is a [Limiter] that counts permits that have already been used, without a lease: because the cost becomes
// known when there is no lease to adjust, or on another machine. If there is a lease, call [Lease.Adjust] instead.
//
// The token bucket and the windows of this package are Chargers, and so are [NewUnlimited], a [Chained] limiter whose
// members are Chargers, and the limiters of package store.
type Charger interface {
	// Charge takes n permits, even if fewer are free, and returns the level after that. If fewer were free, the limiter
	// grants nothing until enough permits have come back. Charge is never rejected, and never waits: callers in the queue
	// wait longer. It does not count as a lease in the statistics. A limiter of this package owes at most 2⁵¹
	// permits, or its limit; permits above that are not taken.
	//
	// If n is negative, Charge gives back -n permits, but never more than are missing, and serves the queue. A sliding
	// window gives back the permits that were taken first or, while it owes permits, the permits that were taken last. In this
	// package, [Lease.Refund] and [Lease.Adjust] of an earlier lease do not give back these permits again.
	//
	// If n is 0, Charge only returns the level.
	//
	// The error is [errors.ErrUnsupported] if the limiter lends its permits, as a [Concurrency] does, or if a part of it
	// is not a Charger; [ErrClosed] if the limiter is closed; and the context's error if ctx has already ended. With an
	// error, nothing has changed.
	Charge(ctx context.Context, n int) (Level, error)
}

// A PartitionedCharger is a [Partitioned] limiter that counts permits that have already been used; see [Charger].
type PartitionedCharger[R any] interface {
	// Charge calls [Charger.Charge] for the resource's limiter. If n is 0 or negative, it makes no partition, and a
	// resource without a partition has the level of an unused limiter.
	Charge(ctx context.Context, resource R, n int) (Level, error)
}

// Statistics is a consistent snapshot of a limiter's figures. The zero Statistics is that of an unused limiter
// that has no permits.
type Statistics struct {
	AvailablePermits int64 // permits that are free now, never negative
	QueuedPermits    int64 // the sum of the permits waited for, not the number of waiters
	SuccessfulLeases int64 // leases granted, those for zero permits included
	FailedLeases     int64 // leases rejected; not errors, and not waiters that Close answered
	// LastKnown is true if AvailablePermits is not of now, because the store of a shared limiter did not answer.
	LastKnown bool
}
