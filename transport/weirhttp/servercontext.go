package weirhttp

import (
	"context"
	"iter"
	"net/http"

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

// Value returns the request of the call for requestKey, and the call itself for callKey.
func (c *call) Value(key any) any {
	switch key.(type) {
	case requestKey:
		return c.Request
	case callKey:
		return c
	default:
		return c.Call.Value(key)
	}
}

// callKey asks a context for the innermost call.
type callKey struct{}

// callOf returns the innermost call that the context belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// undo gives back what the policies of l further out have granted to a request that they need not have admitted, and
// takes back what they have told the client: if they send quota headers, it removes those of all. If l is nil, it does so
// for all Limits.
func undo(l *Limits, w http.ResponseWriter, r *http.Request) {
	for c := callOf(r.Context()); c != nil; c = callOf(c.Context) {
		if l != nil && c.route.limits != l {
			continue
		}
		c.GiveBackFrom(0, true)
		if c.route.sendsQuotas {
			removeQuotas(w.Header())
		}
	}
}
