package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
)

// Charge takes n permits, even if fewer are free; see [Charger].
func (b *bucket) Charge(ctx context.Context, n int) (Level, error) {
	now := moment()
	if ctx.Err() != nil {
		return Level{}, contextError(ctx)
	}
	if n != 0 {
		b.lock()
		return chargeClocked(b, now, n)
	}
	b.mu.Lock() // and not lock, which would begin the grid of a bucket that was not used yet
	if b.state() == nil {
		b.current.Store(notMade)
	}
	return chargeClocked(b, now, n)
}

// Charge takes n permits, even if fewer are free; see [Charger].
func (w *window) Charge(ctx context.Context, n int) (Level, error) {
	now := moment()
	if ctx.Err() != nil {
		return Level{}, contextError(ctx)
	}
	w.mu.Lock()
	return chargeClocked(w, now, n)
}

// Charge returns [errors.ErrUnsupported], because permits are lent; see [Charger].
func (c *Concurrency) Charge(ctx context.Context, n int) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, contextError(ctx)
	}
	return Level{}, noChargeError(c)
}

// Charge returns the level of a limiter from which no permit is missing: Remaining is [math.MaxInt64] and Full is 0. If n
// is positive, it ends the limiter's idleness, as TryAcquire does.
func (u *Unlimited) Charge(ctx context.Context, n int) (Level, error) {
	switch {
	case ctx.Err() != nil:
		return Level{}, contextError(ctx)
	case u.closed.Load():
		return Level{}, ErrClosed
	case n > 0:
		u.lastUse.Store(moment())
	}
	return unlimitedLevel, nil
}

// unlimitedLevel is the level of a limiter without a limit.
var unlimitedLevel = Level{Remaining: math.MaxInt64}

// Charge charges every limiter; see [Charger]. It returns the fewest permits that remain at one of them, and the longest
// time until one of them is full.
//
// Charge first asks all limiters for their levels. If one of them returns an error, because it is closed or not a
// [Charger], Charge returns that error and nothing has changed. If a limiter fails after that, the others are charged.
func (c *Chained) Charge(ctx context.Context, n int) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, contextError(ctx)
	}
	if c.closed.Load() {
		return Level{}, ErrClosed
	}
	level, err := c.chargeMembers(ctx, 0)
	if err != nil || n == 0 {
		return level, err
	}
	return c.chargeMembers(ctx, n)
}

// chargeMembers is Charge without the question for the levels. A chain in the chain has been asked for its level.
func (c *Chained) chargeMembers(ctx context.Context, n int) (Level, error) {
	return chargeAll(c.members, func(i int) (Level, error) {
		if inner, ok := c.limiters[i].(*Chained); ok && n != 0 {
			return inner.chargeMembers(ctx, n)
		}
		return chargeLimiter(ctx, c.limiters[i], n)
	})
}

// chargeAll calls charge for each member and combines the levels and errors.
func chargeAll(members []member, charge func(i int) (Level, error)) (Level, error) {
	least := unlimitedLevel
	var failed error
	for i := range members {
		level, err := charge(i)
		if err != nil {
			failed = cmp.Or(failed, members[i].failed(err))
		}
		least.Remaining = min(least.Remaining, level.Remaining)
		least.Full = max(least.Full, level.Full)
	}
	if failed != nil {
		return Level{}, failed
	}
	return least, nil
}

// chargeLimiter calls the Charge of any limiter.
func chargeLimiter(ctx context.Context, l Limiter, n int) (Level, error) {
	if c, ok := l.(Charger); ok {
		return c.Charge(ctx, n)
	}
	return Level{}, noChargeError(l)
}

func noChargeError(l any) error {
	return fmt.Errorf("limiter: a %T cannot be charged: %w", l, errors.ErrUnsupported)
}
