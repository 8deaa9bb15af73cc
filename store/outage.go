package store

import (
	"context"
	"errors"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// OutageKey is the metadata key on every lease of a shared limiter, granted or rejected, that was decided without the
// store. Its value is the reason.
var OutageKey = limiter.NewMetadataKey[error]("STORE_OUTAGE")

// takeOrFallBack asks the store, or answers by the outage policy. The error is the context's, [limiter.ErrClosed], or an
// [limiter.ErrPermitCount] if the limit was lowered below n meanwhile. It takes none unless so many more are left for the queue.
func (c *core) takeOrFallBack(ctx context.Context, key string, n int, queued int64, waiting bool) (limiter.Lease, error) {
	var lease limiter.Lease
	var err error
	switch {
	case c.leased:
		lease, err = c.remote.takeLease(ctx, key, n, waiting)
	case c.o.Block > 1:
		lease, err = c.takeFromBlock(ctx, key, n)
	default:
		lease, err = c.remote.take(ctx, key, n, queued)
	}
	return c.orFallBack(key, n, false, lease, err)
}

// orFallBack returns the answer of the store, or that of the outage policy if err is why the store could not be asked.
func (c *core) orFallBack(key string, n int, peek bool, lease limiter.Lease, err error) (limiter.Lease, error) {
	switch {
	case errors.Is(err, ErrUnavailable) && c.closed.Load():
		return limiter.Lease{}, limiter.ErrClosed
	case errors.Is(err, ErrUnavailable):
		return c.withoutStore(key, n, peek, err), nil
	case err == nil && !lease.Acquired():
		err = c.inRange(n) // the limit can have been lowered meanwhile
	}
	return lease, err
}

// withoutStore answers by the outage policy; err is why the store could not be asked. With peek, nothing is taken or counted.
func (c *core) withoutStore(key string, n int, peek bool, err error) limiter.Lease {
	if !peek {
		c.s.count.outages.Add(1)
	}
	lease := custom.Rejected(c.s.o.ProbeInterval, limiter.ReasonUnavailable)
	switch c.o.Outage {
	case FailOpen:
		lease = custom.Granted(n, nil)
	case FallBackLocally:
		local := c.fallback.get()
		try := local.TryAcquire // callers wait in the queue of the shared limiter
		if peek {
			try = local.Peek
		}
		own, failed := try(context.Background(), key, n)
		switch {
		case failed != nil, own.Reason() == limiter.ReasonPartitionLimit: // n is above the share, or the limiter is full or closed
		case own.Acquired() && c.leased && !peek:
			lease = custom.Granted(n, func() {
				own.Release()
				c.keys.freed(key)
			})
		default:
			lease = own
		}
	}
	return OutageKey.With(lease, err)
}
