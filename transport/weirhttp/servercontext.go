package weirhttp

import (
	"context"
	"iter"

	"github.com/weir-go/weir/limiter"
)

// LeaseFrom returns the lease that the last policy of the innermost route granted to the request. ok is false if there
// is none: the route has no policies, the policy admitted the request without a grant, or the handler has returned.
//
// The lease is released when the handler returns. A handler that no longer needs it can release it earlier.
func LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) { return transport.LeaseFrom(ctx) }

// Leases returns an iterator over the leases of the request, the last one first, with the name of their policy. The
// leases of policies that are pipelines are not among them.
func Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] { return transport.Leases(ctx) }

// Value returns the request of the call for requestKey.
func (c *call) Value(key any) any {
	if _, ok := key.(requestKey); ok {
		return c.Request
	}
	return c.Call.Value(key)
}
