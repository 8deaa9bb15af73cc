package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/limiter"
)

// Charge takes n permits that the work has already used, even if fewer are available; see [limiter.Charger]. If n is
// negative, it gives back -n permits, and if n is 0, it returns the level and takes nothing. A concurrency limiter returns
// [errors.ErrUnsupported]. A limiter owes 2⁵¹ permits at most; what is above that is not taken.
//
// Charge makes one call to the store, and shares the round trip with other calls as TryAcquire does. Of a bucket with
// LimiterOptions.Block, only what was taken since an instance last borrowed a block can be given back. Other instances that
// remember rejections (CacheRejections, Block) learn of permits that were given back only when these rejections end. Give
// back only what was charged: if permits of a lease come back by Charge, and are taken again, the lease can still give them
// back a second time.
//
// The level is that right after the charge, by the store. With Block, what this instance has borrowed counts as remaining,
// as it does in Lease.Remaining and Statistics, but as taken in Full. The charge is taken from the store, so what was
// borrowed is granted even if the limiter owes permits.
//
// A charge that cannot be sent is lost; it is not sent later. With [FailClosed] and with [FailOpen], the error wraps
// [ErrUnavailable]; if the store has not answered in time, it can have counted the charge nevertheless. With
// [FallBackLocally], the limiter in the process is charged instead, and the level is its level. If ctx ends first, the error
// is that of [Limiter.TryAcquire], but a charge that was already sent counts. A program that reports usage at the end of a
// request should pass a context that does not end with the request; see [context.WithoutCancel].
func (l *Limiter) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return l.c.charge(ctx, "", n)
}

// Charge is [Limiter.Charge] for a key.
func (p *Partitioned) Charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	return p.c.charge(ctx, key, n)
}

// charge is Charge for a key.
func (c *core) charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	switch {
	case ctx.Err() != nil:
		return limiter.Level{}, ctxerr.Of(ctx)
	case c.leased:
		return limiter.Level{}, fmt.Errorf("store: limiter %q lends its permits and cannot be charged: %w", c.name, errors.ErrUnsupported)
	case c.closed.Load():
		return limiter.Level{}, limiter.ErrClosed
	}
	key = storedKey(key)
	level, err := c.remote.charge(ctx, key, int64(n))
	switch unavailable := errors.Is(err, ErrUnavailable); {
	case unavailable && c.closed.Load():
		err = limiter.ErrClosed
	case unavailable && c.o.Outage == FallBackLocally:
		local, failed := c.fallback.get().Charge(context.Background(), key, n)
		if failed != nil { // the limiter was closed just now
			return level, err
		}
		if n != 0 {
			c.s.count.outages.Add(1)
		}
		return local, nil
	}
	return level, err
}
