package limiter

import (
	"context"
	"sync/atomic"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
)

// Translate returns p as a limiter for another kind of resource. f returns the resource of p that is meant, and is
// called once in every call. If p or f is nil, every call returns a [weir.OptionsError].
func Translate[Outer, Inner any](p Partitioned[Inner], f func(Outer) Inner) Partitioned[Outer] {
	var problems validate.Problems
	if isnil.Value(p) {
		problems.Add("p", nil, "must not be nil")
	}
	if f == nil {
		problems.Add("f", nil, "must not be nil")
	}
	if err := problems.Err("limiter"); err != nil {
		return untranslatable[Outer]{err}
	}
	return translated[Outer, Inner]{inner: p, f: f}
}

// untranslatable is what Translate returns for arguments that are nil.
type untranslatable[Outer any] struct{ err error }

func (u untranslatable[Outer]) TryAcquire(context.Context, Outer, int) (Lease, error) {
	return Lease{}, u.err
}

func (u untranslatable[Outer]) Acquire(context.Context, Outer, int) (Lease, error) {
	return Lease{}, u.err
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
// a [Chained] limiter does: a rejected call costs nothing. The error is a [weir.OptionsError] if there are none, or if
// one is nil. There is nothing to close, because it owns none of them.
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
	if err := checkArguments(ctx, n, true); err != nil {
		return Lease{}, err
	}
	return takeAll(len(c.limiters), n, &c.granted, func(i int) (Lease, error) {
		return c.limiters[i].Acquire(ctx, resource, n)
	})
}
