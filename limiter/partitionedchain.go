package limiter

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/turn"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/rate"
)

// Translate returns p as a limiter for another kind of resource. f is called once in every call, and returns the
// resource for which p is asked. If p or f is nil, every call returns a [weir.OptionsError]. The returned limiter is a
// [PartitionedPeeker] and a [PartitionedCharger], whose methods need those of p, and has the method Limits of a
// [PartitionedLimiter].
func Translate[Outer, Inner any](p Partitioned[Inner], f func(Outer) Inner) Partitioned[Outer] {
	var problems validate.Problems
	if isnil.Value(p) {
		problems.Add("p", nil, "must not be nil")
	}
	if f == nil {
		problems.Add("f", nil, "must not be nil")
	}
	return &translated[Outer, Inner]{p, f, problems.Err("limiter")}
}

// A translated limiter is one for another kind of resource. If err is not nil, every call returns it.
type translated[Outer, Inner any] struct {
	p   Partitioned[Inner]
	f   func(Outer) Inner
	err error
}

func (t *translated[Outer, Inner]) TryAcquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	if t.err != nil {
		return Lease{}, t.err
	}
	return t.p.TryAcquire(ctx, t.f(resource), n)
}

func (t *translated[Outer, Inner]) Acquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	if t.err != nil {
		return Lease{}, t.err
	}
	return t.p.Acquire(ctx, t.f(resource), n)
}

func (t *translated[Outer, Inner]) Peek(ctx context.Context, resource Outer, n int) (Lease, error) {
	if t.err != nil {
		return Lease{}, t.err
	}
	return peekPartitioned(ctx, t.p, t.f(resource), n)
}

func (t *translated[Outer, Inner]) Charge(ctx context.Context, resource Outer, n int) (Level, error) {
	return t.charge(ctx, resource, n, false)
}

func (t *translated[Outer, Inner]) charge(ctx context.Context, resource Outer, n int, checked bool) (Level, error) {
	if t.err != nil {
		return Level{}, t.err
	}
	return chargePartitioned(ctx, t.p, t.f(resource), n, checked)
}

// Limits is that of [PartitionedLimiter].
func (t *translated[Outer, Inner]) Limits(resource Outer) (l rate.Limits, err error) {
	if p, ok := t.p.(interface {
		Limits(resource Inner) (rate.Limits, error)
	}); ok && t.err == nil {
		return p.Limits(t.f(resource))
	}
	return l, t.err
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
	return takeAll(c.members, n, &c.granted, func(i int) (Lease, error) {
		if wait {
			l, err := c.limiters[i].Acquire(ctx, resource, n)
			turn.Take(ctx)
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
	return c.charge(ctx, resource, n, false)
}

func (c *partitionedChain[R]) charge(ctx context.Context, resource R, n int, checked bool) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	if n != 0 && !checked {
		if level, err := c.charge(ctx, resource, 0, true); err != nil {
			return level, err
		}
	}
	return chargeAll(c.members, func(i int) (Level, error) {
		return chargePartitioned(ctx, c.limiters[i], resource, n, n != 0)
	})
}

// peekPartitioned calls the Peek of any partitioned limiter.
func peekPartitioned[R any](ctx context.Context, p Partitioned[R], resource R, n int) (Lease, error) {
	if peeker, ok := p.(PartitionedPeeker[R]); ok {
		return peeker.Peek(ctx, resource, n)
	}
	return Lease{}, noPeekError(p)
}

// chargePartitioned calls the Charge of any partitioned limiter. checked reports whether it has been called with 0 and
// returned a level.
func chargePartitioned[R any](ctx context.Context, p Partitioned[R], resource R, n int, checked bool) (Level, error) {
	switch c := p.(type) {
	case interface {
		charge(ctx context.Context, resource R, n int, checked bool) (Level, error)
	}:
		return c.charge(ctx, resource, n, checked)
	case PartitionedCharger[R]:
		return c.Charge(ctx, resource, n)
	}
	return Level{}, noChargeError(p)
}
