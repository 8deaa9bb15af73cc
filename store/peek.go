package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
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
	lease, borrowed, decided := c.peekLocally(key, n)
	if decided {
		return lease, nil
	}
	lease, err := c.peekInStore(ctx, key, n, borrowed)
	return c.decided(key, n, true, lease, err)
}

// peekLocally is tryLocally for peek. If it has not decided, borrowed is how many permits the blocks have.
func (c *core) peekLocally(key string, n int) (lease limiter.Lease, borrowed int64, decided bool) {
	ks := c.keys.lock(key, false)
	if ks == nil {
		return limiter.Lease{}, 0, false
	}
	defer ks.mu.Unlock()
	if n > 0 && !ks.queue.Empty() && c.limits().QueueOrder == limiter.OldestFirst {
		return custom.Rejected(ks.queue.waitBehind(n), ""), 0, true
	}
	now := time.Now()
	switch borrowed = ks.borrowed(now); {
	case borrowed >= weight(n):
		return custom.Granted(n, nil), 0, true
	case ks.rejection.covers(n, now):
		wait := ks.lastAnswer.untilAvailable(int64(n), now)
		return custom.RejectedKnowing(wait, "", ks.lastAnswer.free()), 0, true
	}
	return limiter.Lease{}, borrowed, false
}

// peekInStore asks the store for peek. borrowed permits need not be available there.
func (c *core) peekInStore(ctx context.Context, key string, n int, borrowed int64) (limiter.Lease, error) {
	free, q, err := c.askFree(ctx, key)
	if err != nil {
		return limiter.Lease{}, err
	}
	wait := time.Duration(0)
	if !c.leased {
		wait = q.Wait(int64(n) - borrowed)
	}
	switch {
	case wait == 0 && (!c.leased || free >= weight(n)):
		return custom.Granted(n, nil), nil
	case c.o.Block > 1:
		return custom.Rejected(wait, ""), nil
	default:
		return custom.RejectedKnowing(wait, "", free), nil
	}
}

// askFree asks the store how many permits are available, and also returns the call.
func (c *core) askFree(ctx context.Context, key string) (int64, *calls.Call, error) {
	if c.leased {
		q, err := c.askForLease(ctx, key, 0, false)
		if err != nil {
			return 0, nil, err
		}
		return q.Reply.Definition.Permits - q.Reply.InUse, q, nil
	}
	q, err := c.ask(ctx, key, backend.Request{})
	if err != nil {
		return 0, nil, err
	}
	return q.Definition.Free(&q.State), q, nil
}
