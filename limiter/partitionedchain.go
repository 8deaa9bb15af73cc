package limiter

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weir-go/weir/internal/isnil"
)

// Translate returns p as a limiter for another kind of resource: f says which of
// p's resources is meant, and is called once in every call. If either is nil,
// every call returns an [ErrInvalidOptions].
func Translate[Outer, Inner any](p Partitioned[Inner], f func(Outer) Inner) Partitioned[Outer] {
	if isnil.Value(p) || f == nil {
		return untranslatable[Outer]{}
	}
	return translated[Outer, Inner]{inner: p, f: f}
}

type untranslatable[Outer any] struct{}

func (untranslatable[Outer]) TryAcquire(context.Context, Outer, int) (Lease, error) {
	return Lease{}, fmt.Errorf("%w: Translate was given no limiter or no function", ErrInvalidOptions)
}

func (u untranslatable[Outer]) Acquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	return u.TryAcquire(ctx, resource, n)
}

type translated[Outer, Inner any] struct {
	inner Partitioned[Inner]
	f     func(Outer) Inner
}

func (t translated[Outer, Inner]) TryAcquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	return t.inner.TryAcquire(ctx, t.f(resource), n)
}

func (t translated[Outer, Inner]) Acquire(ctx context.Context, resource Outer, n int) (Lease, error) {
	return t.inner.Acquire(ctx, t.f(resource), n)
}

// ChainPartitioned returns a limiter that asks all of limiters, in that order, as
// a [Chained] limiter does: a rejected call costs nothing. It is an
// [ErrInvalidOptions] if there are none, or if one is nil. There is nothing to
// close: it owns none of them.
func ChainPartitioned[R any](limiters ...Partitioned[R]) (Partitioned[R], error) {
	if err := checkMembers(limiters); err != nil {
		return nil, err
	}
	return &chainedPartitioned[R]{limiters: append([]Partitioned[R](nil), limiters...)}, nil
}

type chainedPartitioned[R any] struct {
	limiters []Partitioned[R]
	granted  atomic.Int64
}

func (c *chainedPartitioned[R]) TryAcquire(ctx context.Context, resource R, n int) (Lease, error) {
	if n < 0 {
		return Lease{}, permitCountError(n, 0)
	}
	return takeAll(len(c.limiters), n, &c.granted, func(i int) (Lease, error) {
		return c.limiters[i].TryAcquire(ctx, resource, n)
	})
}

func (c *chainedPartitioned[R]) Acquire(ctx context.Context, resource R, n int) (Lease, error) {
	if err := mayAsk(ctx, n, true); err != nil {
		return Lease{}, err
	}
	return takeAll(len(c.limiters), n, &c.granted, func(i int) (Lease, error) {
		return c.limiters[i].Acquire(ctx, resource, n)
	})
}
