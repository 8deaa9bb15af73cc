package limiter

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
)

// An unlimited grants everything, and counts it.
type unlimited struct {
	granted atomic.Int64
	lastUse atomic.Int64 // moment of the last use
	closed  atomic.Bool
}

// NewUnlimited returns a limiter that grants everything, and counts it. Use it where a [Limiter] is required and nothing is to
// be limited: for an administrator's key, or for a feature that is switched off. Like the others, it is a [Charger], a
// [Peeker], a [StatisticsProvider] and an [io.Closer].
func NewUnlimited() Limiter {
	u := &unlimited{}
	u.lastUse.Store(moment())
	return u
}

// TryAcquire grants any number of permits. The error is [ErrPermitCount] for a negative n, the context's error, or
// [ErrClosed].
func (u *unlimited) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return u.acquire(ctx, n, false)
}

// Acquire is TryAcquire: nothing is waited for.
func (u *unlimited) Acquire(ctx context.Context, n int) (Lease, error) {
	return u.acquire(ctx, n, true)
}

func (u *unlimited) acquire(ctx context.Context, n int, wait bool) (Lease, error) {
	if err := argumentError(ctx, n, wait); err != nil {
		return Lease{}, err
	}
	if u.closed.Load() {
		return Lease{}, ErrClosed
	}
	u.granted.Add(1)
	if n > 0 {
		u.lastUse.Store(moment())
	}
	return Lease{owner: (*unlimitedOwner)(u), n: n}, nil
}

// Statistics returns the current figures. AvailablePermits is [math.MaxInt64].
func (u *unlimited) Statistics() Statistics {
	return Statistics{AvailablePermits: math.MaxInt64, SuccessfulLeases: u.granted.Load()}
}

// IdleDuration returns the time since permits were last asked for. ok is always true: a new one in its place
// would decide the same.
func (u *unlimited) IdleDuration() (idle time.Duration, ok bool) {
	return time.Duration(max(moment()-u.lastUse.Load(), 0)), true
}

// Close closes the limiter: later calls return [ErrClosed]. It returns nil, and can be called again.
func (u *unlimited) Close() error {
	u.closed.Store(true)
	return nil
}

// An unlimitedOwner is an unlimited as the owner of its leases.
type unlimitedOwner unlimited

func (u *unlimitedOwner) Release(int, int64) {}

func (u *unlimitedOwner) Refund(int, int64) {
	if !u.closed.Load() {
		u.granted.Add(-1)
	}
}

func (u *unlimitedOwner) Adjust(_ int, tag int64, _ int) (newTag int64, ok bool) { return tag, true }

// Charge returns the level of a limiter from which no permit is missing: Remaining is [math.MaxInt64] and Full is 0. If n
// is positive, it ends the limiter's idleness, as TryAcquire does.
func (u *unlimited) Charge(ctx context.Context, n int) (Level, error) {
	switch {
	case ctx.Err() != nil:
		return Level{}, ctxerr.Of(ctx)
	case u.closed.Load():
		return Level{}, ErrClosed
	case n > 0:
		u.lastUse.Store(moment())
	}
	return unlimitedLevel, nil
}

// unlimitedLevel is the level of a limiter without a limit.
var unlimitedLevel = Level{Remaining: math.MaxInt64}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (u *unlimited) Peek(ctx context.Context, n int) (Lease, error) {
	if err := argumentError(ctx, n, false); err != nil {
		return Lease{}, err
	}
	if u.closed.Load() {
		return Lease{}, ErrClosed
	}
	return peeked(n), nil
}
