package limiter

import (
	"context"
	"time"
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

// A StatisticsProvider is a [Limiter] that has figures about itself.
type StatisticsProvider interface {
	Statistics() Statistics
}

// An Idler is a [Limiter] that knows since when it has been full and unused. A program that has many limiters can drop
// one that has been idle: a new one in its place would decide the same.
type Idler interface {
	// IdleDuration returns for how long the limiter has been idle; ok is false while it is in use.
	IdleDuration() (idle time.Duration, ok bool)
}

// A Replenisher is a [Limiter] whose permits come back as time passes.
type Replenisher interface {
	// TryReplenish catches up with every whole period that has passed and returns true. On a limiter that replenishes
	// by itself it does nothing and returns false.
	TryReplenish() bool
	// ReplenishmentPeriod returns the time between two refills.
	ReplenishmentPeriod() time.Duration
	// AutoReplenishing reports whether the limiter replenishes by itself.
	AutoReplenishing() bool
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

// A Level is how many permits a limiter has at a moment. The zero Level comes with an error, and means nothing.
type Level struct {
	// Remaining is how many permits are left. It is below 0 if more were charged than there were, and after a limit was
	// lowered below what is taken.
	Remaining int64
	// Full is the time until all permits are back if no more are taken, not even by callers in the queue; 0 if all are
	// there. A limiter that is replenished by hand computes it from the real clock, as it
	// does RetryAfter.
	Full time.Duration
}

// A Charger is a [Limiter] that counts what has already been used: the cost of work that becomes known when there is no
// lease to adjust, or on another machine. Where there is a lease, call [Lease.Adjust] instead.
//
// The windows and the bucket of this package are Chargers, an [Unlimited], a [Chained] limiter if its members are, and the
// limiters of package store.
type Charger interface {
	// Charge takes n permits, even if fewer are free, and returns the level after that. If fewer are free, the limiter
	// grants nothing until enough permits have come back. Charge neither waits in the queue nor is it rejected: callers
	// in the queue wait longer. It counts no lease in the statistics. A limiter of this package owes about 2⁶² permits at
	// most; what is above that is not taken.
	//
	// With an n below 0, Charge gives back -n permits, but never more than are missing, and serves the queue. A sliding
	// window gives back first what was taken first or, as long as it owes, what was taken last. In this package, [Lease.Refund] and [Lease.Adjust] of an earlier
	// lease do not give back again what came back by a Charge.
	//
	// With 0, Charge takes nothing, changes nothing, and returns the level.
	//
	// The error is [errors.ErrUnsupported] if the limiter lends its permits, as a [Concurrency] does, or if a part of it
	// is no Charger. It is [ErrClosed] if the limiter is closed, and the context's error if ctx has ended before. Then
	// nothing has changed.
	Charge(ctx context.Context, n int) (Level, error)
}

// A PartitionedCharger is a [Partitioned] limiter that counts what has already been used.
type PartitionedCharger[R any] interface {
	// Charge is that of [Charger] for the resource's limiter. With an n of 0 or below it makes no partition, and a
	// resource without one has the level of an unused limiter.
	Charge(ctx context.Context, resource R, n int) (Level, error)
}

// A KeyPeeker is a limiter for many keys, which are strings, that can say what it would answer for one of them. A
// [PartitionedLimiter] whose keys are of type string is one, and so are the partitioned limiters of package store.
type KeyPeeker interface {
	// PeekKey is that of [Peeker] for the key's limiter. It makes no partition.
	PeekKey(ctx context.Context, key string, n int) (Lease, error)
}

// Statistics is a consistent snapshot of a limiter's figures. The zero Statistics is that of an unused limiter
// that has no permits.
type Statistics struct {
	AvailablePermits int64 // permits that are free now, never negative
	QueuedPermits    int64 // the sum of the permits waited for, not the number of waiters
	SuccessfulLeases int64 // leases granted, those for zero permits included
	FailedLeases     int64 // leases rejected; not errors, and not waiters that Close answered
}
