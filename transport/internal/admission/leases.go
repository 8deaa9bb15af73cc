package admission

import (
	"context"
	"iter"
	"slices"

	"github.com/weir-go/weir/limiter"
)

// LeaseFrom returns the first of [Transport.Leases]. ok is false if there is none.
func (t *Transport[R]) LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) {
	for _, l = range t.Leases(ctx) {
		return l, true
	}
	return limiter.Lease{}, false
}

// Leases returns an iterator over the leases of the call, the last one first, with the name of their policy.
func (t *Transport[R]) Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] {
	return func(yield func(string, limiter.Lease) bool) {
		for c := CallOf[R](ctx); c != nil; c = c.outer() {
			for _, g := range slices.Backward(c.grants()) {
				if !g.isTopUp() && g.lease.Acquired() && !yield(g.policy.Name, g.lease) {
					return
				}
			}
		}
	}
}
