package weirhttp

import (
	"context"

	"github.com/weir-go/weir/limiter"
)

// undo takes a grant back as if it had not been, also where Release would give
// nothing back. A chain does that with what it took when a later limiter rejects:
// here the lease is what it took, and the later limiter never grants.
func undo(l limiter.Lease) {
	if l.Acquired() {
		_, _ = undoing.TryAcquire(context.Background(), l, 0)
	}
}

var undoing = mustChain(taken{}, refuses{})

func mustChain(members ...limiter.Partitioned[limiter.Lease]) limiter.Partitioned[limiter.Lease] {
	c, err := limiter.ChainPartitioned(members...)
	if err != nil {
		panic(err)
	}
	return c
}

// taken grants the lease that there is already.
type taken struct{}

func (taken) TryAcquire(_ context.Context, l limiter.Lease, _ int) (limiter.Lease, error) {
	return l, nil
}

func (taken) Acquire(_ context.Context, l limiter.Lease, _ int) (limiter.Lease, error) {
	return l, nil
}

// refuses grants nothing.
type refuses struct{}

func (refuses) TryAcquire(context.Context, limiter.Lease, int) (limiter.Lease, error) {
	return limiter.Lease{}, nil
}

func (refuses) Acquire(context.Context, limiter.Lease, int) (limiter.Lease, error) {
	return limiter.Lease{}, nil
}
