// Package limiter has the rate limiters: token bucket, fixed window, sliding
// window, concurrency and unlimited, a chain of several, and a limiter that is
// partitioned by key.
//
// All of them answer with a [Lease]: granted, or rejected with the time after
// which it is worth asking again. Three calls ask for one:
//
//   - [Wait] returns when the permits are granted or the context ends. Workers
//     and batch jobs want it.
//   - Acquire waits in the limiter's bounded queue where it has room, and
//     otherwise rejects at once. Servers want it: they pass a rejection on.
//     The default QueueLimit is 0, and then it does not wait.
//   - TryAcquire never waits.
//
// A caller of Acquire or TryAcquire looks at both results:
//
//	lease, err := l.Acquire(ctx, 1)
//	if err != nil {
//		return err // the context ended, the limiter is closed, or n is out of range
//	}
//	defer lease.Release()
//	if !lease.Acquired() {
//		return errTooBusy // lease.RetryAfter() may say when to come back
//	}
//
// An error says that the call could not be decided; a rejection is the answer of a
// limiter that works. Keep the two apart.
//
// # Time
//
// No limiter owns a goroutine or a timer while its queue is empty: its state is
// brought up to date from the monotonic clock when a method is called.
// Refills happen on a grid of whole periods, anchored when the limiter was made;
// they never drift, however late a call is. If a timer is late, waiters lose no
// permits that came due while they waited, and several can be released together.
// Everything works inside [testing/synctest], so there is no clock to inject.
//
// # Concurrency
//
// Every exported type of this package is safe for use by many goroutines at
// once, except where its comment says otherwise.
package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir"
)

// A Limiter decides whether work may go ahead now, may wait its turn, or is
// rejected. Anything with these two methods is a Limiter: one of this package's,
// a user's own, or one whose state is on another machine.
//
// A rejection is a Lease that is not acquired, with a nil error. An error means
// that no decision was taken: n is out of range ([ErrPermitCount]), the limiter
// is closed ([ErrClosed]), or ctx ended.
type Limiter interface {
	// TryAcquire takes n permits if they are there now. It never queues.
	// With n == 0 it asks whether anything is left, and takes nothing.
	TryAcquire(ctx context.Context, n int) (Lease, error)

	// Acquire takes n permits, waiting in the limiter's queue where it has one
	// with room. With n == 0 it waits until at least one permit is there.
	Acquire(ctx context.Context, n int) (Lease, error)
}

// A StatisticsProvider is a [Limiter] that can say how it is doing.
type StatisticsProvider interface {
	Statistics() Statistics
}

// An Idler is a [Limiter] that knows since when it has been completely full and
// unused. Whoever keeps many limiters may forget one that has been idle for
// long: a new one in its place would answer the same.
type Idler interface {
	// IdleDuration returns for how long the limiter has been idle; ok is false
	// while it is in use.
	IdleDuration() (idle time.Duration, ok bool)
}

// A Replenisher is a [Limiter] whose permits come back as time passes.
type Replenisher interface {
	// TryReplenish catches up with every whole period that has gone by and
	// returns true. On a limiter that replenishes by itself it does nothing and
	// returns false.
	TryReplenish() bool
	// ReplenishmentPeriod is the time between two refills.
	ReplenishmentPeriod() time.Duration
	// AutoReplenishing tells whether the limiter replenishes by itself.
	AutoReplenishing() bool
}

// Statistics is a snapshot of a limiter's figures, consistent in itself. The
// zero Statistics is that of a limiter that nobody has used and that has
// nothing to give.
type Statistics struct {
	AvailablePermits int64 // what could be taken now, never negative
	QueuedPermits    int64 // the sum of the permits waited for, not the number of waiters
	SuccessfulLeases int64 // leases granted, those for zero permits included
	FailedLeases     int64 // leases rejected; neither errors nor waiters that were closed out count
}

// Errors of every limiter in this package. They come wrapped in a text with the
// details: compare with [errors.Is].
var (
	// ErrClosed is returned by TryAcquire, Acquire and Reconfigure of a closed
	// limiter.
	ErrClosed = errors.New("limiter: closed")
	// ErrInvalidOptions is [weir.ErrInvalidOptions]. Constructors and Reconfigure return a [weir.OptionsError], which
	// lists every field that is wrong and what would be right.
	ErrInvalidOptions = weir.ErrInvalidOptions
	// ErrPermitCount is returned for a negative number of permits, and for one
	// above what the limiter could ever grant.
	ErrPermitCount = errors.New("limiter: permit count out of range")
)

// The reasons that this package's limiters give for a rejection; see
// [Lease.Reason]. A rejected TryAcquire that just found too few permits has none.
const (
	// ReasonNoPermit: an Acquire found too few permits, and the limiter has no queue:
	// its QueueLimit is 0.
	ReasonNoPermit = "no permit free"
	// ReasonQueueLimit: the queue had no room for the waiter, or newer waiters took its room.
	ReasonQueueLimit = "queue limit reached"
	// ReasonLimitLowered: a Reconfigure set a limit below what the waiter asks for.
	ReasonLimitLowered = "limit lowered"
	// ReasonClosed: the limiter was closed while the caller waited.
	ReasonClosed = "limiter closed"
	// ReasonPartitionLimit: a new key, and MaxPartitions others are in use; see
	// [PartitionedOptions].
	ReasonPartitionLimit = "partition limit reached"
	// ReasonUnavailable: the permits are kept elsewhere, and whoever keeps them could not
	// be asked. None of this package's limiters gives it; those of package store do.
	ReasonUnavailable = "limiter unavailable"
)
