package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// Peek returns what [Limiter.TryAcquire] would return now; see [limiter.Peeker]. It makes at most one call to the store,
// or two as TryAcquire does, which take no permits. While the store is away, the [OutagePolicy] decides.
//
// If this instance has not used the limiter before, Peek is its first use: the limits that the limiter was made with come
// into force as they would with TryAcquire.
func (l *Limiter) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	return l.c.peek(ctx, "", n)
}

// Peek is [Limiter.Peek] for a key.
func (p *Partitioned) Peek(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return p.c.peek(ctx, key, n)
}

// PeekKey is [Partitioned.Peek]. With it, a Partitioned is a [custom.KeyPeeker].
func (p *Partitioned) PeekKey(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return p.c.peek(ctx, key, n)
}

// peek is tryAcquire without taking or counting anything.
func (c *core) peek(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, false); err != nil {
		return limiter.Lease{}, err
	}
	key = storedKey(key)
	lease, by, queued := c.keys.tryLocally(key, n, false, true)
	if by == byKeyState {
		return lease, nil
	}
	free, q, err := c.remote.askFree(ctx, key)
	if err != nil {
		return c.orFallBack(key, n, true, limiter.Lease{}, err)
	}
	wait := time.Duration(0)
	if !c.leased {
		wait = q.Wait(int64(n) + queued - c.keys.borrowed(key)) // what is borrowed need not be available in the store
	}
	switch {
	case wait == 0 && (!c.leased || free >= weight(n)+queued):
		return custom.Granted(n, nil), nil
	case c.o.Block > 1:
		return c.orFallBack(key, n, true, custom.Rejected(wait, ""), nil)
	default:
		return c.orFallBack(key, n, true, custom.RejectedKnowing(wait, "", free), nil)
	}
}
