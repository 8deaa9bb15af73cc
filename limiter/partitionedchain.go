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
	if err := problems.Err("limiter"); err != nil {
		return &partitionedFunc[Outer]{
			func(context.Context, Outer, int, bool) (Lease, error) { return Lease{}, err },
			func(context.Context, Outer, int) (Lease, error) { return Lease{}, err },
			func(context.Context, Outer, int, bool) (Level, error) { return Level{}, err },
			func(Outer) (rate.Limits, error) { return rate.Limits{}, err },
		}
	}
	return &partitionedFunc[Outer]{
		func(ctx context.Context, resource Outer, n int, wait bool) (Lease, error) {
			return ask(ctx, p, f(resource), n, wait)
		},
		func(ctx context.Context, resource Outer, n int) (Lease, error) {
			return peekPartitioned(ctx, p, f(resource), n)
		},
		func(ctx context.Context, resource Outer, n int, checked bool) (Level, error) {
			return chargePartitioned(ctx, p, f(resource), n, checked)
		},
		func(resource Outer) (l rate.Limits, err error) {
			if p, ok := p.(interface {
				Limits(resource Inner) (rate.Limits, error)
			}); ok {
				return p.Limits(f(resource))
			}
			return l, nil
		},
	}
}

// ChainPartitioned returns a limiter that asks all of limiters, in that order, as a [Chained] limiter does: a rejected
// call costs nothing. The error is a [weir.OptionsError] if there are none, or if one is nil. The chain has no Close,
// because it does not own its limiters. It is a [PartitionedPeeker] and a [PartitionedCharger], whose methods need those
// of limiters; its Charge is that of [Chained].
func ChainPartitioned[R any](limiters ...Partitioned[R]) (Partitioned[R], error) {
	if err := checkMembers(limiters); err != nil {
		return nil, err
	}
	chained, members := slices.Clone(limiters), membersOf(limiters)
	granted := new(atomic.Int64)
	return &partitionedFunc[R]{
		func(ctx context.Context, resource R, n int, wait bool) (Lease, error) {
			if err := argumentError(ctx, n, wait); err != nil {
				return Lease{}, err
			}
			return takeAll(members, n, granted, func(i int) (Lease, error) {
				l, err := ask(ctx, chained[i], resource, n, wait)
				turn.Take(ctx)
				return l, err
			})
		},
		func(ctx context.Context, resource R, n int) (Lease, error) {
			if err := argumentError(ctx, n, false); err != nil {
				return Lease{}, err
			}
			return peekAll(members, n, func(i int) (Lease, error) {
				return peekPartitioned(ctx, chained[i], resource, n)
			})
		},
		func(ctx context.Context, resource R, n int, checked bool) (Level, error) {
			if ctx.Err() != nil {
				return Level{}, ctxerr.Of(ctx)
			}
			charge := func(n int) (Level, error) {
				return chargeAll(members, func(i int) (Level, error) {
					return chargePartitioned(ctx, chained[i], resource, n, n != 0)
				})
			}
			if n != 0 && !checked {
				if level, err := charge(0); err != nil {
					return level, err
				}
			}
			return charge(n)
		},
		func(R) (l rate.Limits, err error) { return l, nil }, // there are several
	}, nil
}

// A partitionedFunc is a [Partitioned] limiter, a [PartitionedPeeker] and a [PartitionedCharger], of functions.
type partitionedFunc[R any] struct {
	acquire func(ctx context.Context, resource R, n int, wait bool) (Lease, error)
	peek    func(ctx context.Context, resource R, n int) (Lease, error)
	// charge is Charge. checked reports whether it has been called with 0 and returned a level.
	charge func(ctx context.Context, resource R, n int, checked bool) (Level, error)
	limits func(resource R) (rate.Limits, error)
}

func (p *partitionedFunc[R]) TryAcquire(ctx context.Context, resource R, n int) (Lease, error) {
	return p.acquire(ctx, resource, n, false)
}

func (p *partitionedFunc[R]) Acquire(ctx context.Context, resource R, n int) (Lease, error) {
	return p.acquire(ctx, resource, n, true)
}

func (p *partitionedFunc[R]) Peek(ctx context.Context, resource R, n int) (Lease, error) {
	return p.peek(ctx, resource, n)
}

func (p *partitionedFunc[R]) Charge(ctx context.Context, resource R, n int) (Level, error) {
	return p.charge(ctx, resource, n, false)
}

// Limits is that of [PartitionedLimiter].
func (p *partitionedFunc[R]) Limits(resource R) (rate.Limits, error) { return p.limits(resource) }

// ask calls Acquire of p if wait is true, and otherwise TryAcquire.
func ask[R any](ctx context.Context, p Partitioned[R], resource R, n int, wait bool) (Lease, error) {
	if wait {
		return p.Acquire(ctx, resource, n)
	}
	return p.TryAcquire(ctx, resource, n)
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
	case *partitionedFunc[R]:
		return c.charge(ctx, resource, n, checked)
	case PartitionedCharger[R]:
		return c.Charge(ctx, resource, n)
	}
	return Level{}, noChargeError(p)
}
