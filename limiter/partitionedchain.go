package limiter

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/rate"
)

// Translate returns p as a limiter for another kind of resource. f is called once in every call, and returns the
// resource for which p is asked. If p or f is nil, Translate returns nil. The returned limiter is a [PartitionedPeeker] and a
// [PartitionedCharger], whose methods need those of p, and has the method Limits of a [PartitionedLimiter].
func Translate[Outer, Inner any](p Partitioned[Inner], f func(Outer) Inner) Partitioned[Outer] {
	if isnil.Value(p) || f == nil {
		return nil // so that a chain or a strategy of it finds it
	}
	return &translated[Outer, Inner]{p, f}
}

// A translated limiter is one for another kind of resource.
type translated[Outer, Inner any] struct {
	p Partitioned[Inner]
	f func(Outer) Inner
}

func (t *translated[Outer, Inner]) TryAcquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	return t.p.TryAcquire(ctx, t.f(resource), n)
}

func (t *translated[Outer, Inner]) Acquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	return t.p.Acquire(ctx, t.f(resource), n)
}

func (t *translated[Outer, Inner]) Peek(ctx context.Context, resource Outer, n int) (Lease, error) {
	return peekPartitioned(ctx, t.p, t.f(resource), n)
}

func (t *translated[Outer, Inner]) Charge(ctx context.Context, resource Outer, n int) (Level, error) {
	return chargePartitioned(ctx, t.p, t.f(resource), n)
}

// Limits is that of [PartitionedLimiter].
func (t *translated[Outer, Inner]) Limits(resource Outer) (l rate.Limits, err error) {
	if p, ok := t.p.(interface {
		Limits(resource Inner) (rate.Limits, error)
	}); ok {
		return p.Limits(t.f(resource))
	}
	return l, nil
}

// ChainPartitioned returns a limiter that asks all of limiters, in that order, as a [Chained] limiter does: a rejected
// call costs nothing. The error is a [weir.OptionsError] if there are none, or if one is nil. The chain has no Close,
// because it does not own its limiters. It is a [PartitionedPeeker] and a [PartitionedCharger], whose methods need those
// of limiters; its Charge is that of [Chained].
func ChainPartitioned[R any](limiters ...Partitioned[R]) (Partitioned[R], error) {
	if err := checkMembers(limiters); err != nil {
		return nil, err
	}
	return &partitionedChain[R]{limiters: slices.Clone(limiters), members: membersOf(limiters)}, nil
}

// A partitionedChain is a [Chained] limiter of partitioned ones.
type partitionedChain[R any] struct {
	limiters []Partitioned[R]
	members  []member
	granted  atomic.Int64
}

func (c *partitionedChain[R]) TryAcquire(ctx context.Context, resource R, n int) (Lease, error) {
	return c.acquire(ctx, resource, n, false)
}

func (c *partitionedChain[R]) Acquire(ctx context.Context, resource R, n int) (Lease, error) {
	return c.acquire(ctx, resource, n, true)
}

func (c *partitionedChain[R]) acquire(ctx context.Context, resource R, n int, wait bool) (Lease, error) {
	if err := argumentError(ctx, n, wait); err != nil {
		return Lease{}, err
	}
	return takeAll(c.members, nil, n, &c.granted, func(i, n int) (Lease, error) {
		if wait {
			l, err := c.limiters[i].Acquire(ctx, resource, n)
			deterministic.Take(ctx)
			return l, err
		}
		return c.limiters[i].TryAcquire(ctx, resource, n)
	})
}

func (c *partitionedChain[R]) Peek(ctx context.Context, resource R, n int) (Lease, error) {
	if err := argumentError(ctx, n, false); err != nil {
		return Lease{}, err
	}
	return peekAll(c.members, n, func(i int) (Lease, error) { return peekPartitioned(ctx, c.limiters[i], resource, n) })
}

func (c *partitionedChain[R]) Charge(ctx context.Context, resource R, n int) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	return chargeAll(c.members, nil, n, func(i, n int) (Level, error) { return chargePartitioned(ctx, c.limiters[i], resource, n) })
}

// peekPartitioned calls the Peek of any partitioned limiter.
func peekPartitioned[R any](ctx context.Context, p Partitioned[R], resource R, n int) (Lease, error) {
	if peeker, ok := p.(PartitionedPeeker[R]); ok {
		return peeker.Peek(ctx, resource, n)
	}
	return Lease{}, unsupported(p, "has no Peek")
}

// chargePartitioned calls the Charge of any partitioned limiter.
func chargePartitioned[R any](ctx context.Context, p Partitioned[R], resource R, n int) (Level, error) {
	if c, ok := p.(PartitionedCharger[R]); ok {
		return c.Charge(ctx, resource, n)
	}
	return Level{}, unsupported(p, "cannot be charged")
}
