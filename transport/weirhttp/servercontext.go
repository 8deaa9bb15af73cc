package weirhttp

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/weir-go/weir/limiter"
)

// LeaseFrom returns the lease that the last policy of the innermost route granted to the request. ok is false if there
// is none: the route has no policies, the policy admitted the request without a grant, or the handler has returned.
//
// The lease is released when the handler returns. A handler that no longer needs it can release it earlier.
func LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) {
	for _, l = range Leases(ctx) {
		return l, true
	}
	return limiter.Lease{}, false
}

// Leases returns an iterator over the leases of the request, the last one first, with the name of their policy. The
// leases of policies that are pipelines are not among them.
func Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] {
	return func(yield func(string, limiter.Lease) bool) {
		for c := callOf(ctx); c != nil; c = c.outer() {
			for _, g := range slices.Backward(c.grants()) {
				if !g.isTopUp() && g.lease.Acquired() && !yield(g.policy.name, g.lease) {
					return
				}
			}
		}
	}
}

// callKey asks a context for the innermost call.
type callKey struct{}

// Value returns the call itself for callKey, and its request for requestKey.
func (c *call) Value(key any) any {
	switch key.(type) {
	case callKey:
		return c
	case requestKey:
		return c.request
	default:
		return c.Context.Value(key)
	}
}

// String returns only what never changes: fmt would read all fields, and race with Charge.
func (c *call) String() string { return fmt.Sprintf("%v.weirhttp", c.Context) }

// callOf returns the innermost call that the context belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// outer returns the call of the next route further out, or nil.
func (c *call) outer() *call { return callOf(c.Context) }
