// Package holding lets a strategy hold what it has acquired for an execution for longer than the execution: a request to a
// server has not ended when the header of its response is there, but when the body has been read or closed.
package holding

import (
	"context"

	"github.com/weir-go/weir/limiter"
)

// Key asks the context of an execution for its [Holder].
type Key struct{}

// A Holder knows when the result of an execution is no longer in use.
type Holder interface {
	// Hold calls release once, when result is no longer in use, from any goroutine. It returns false if result is not in
	// use: then the caller must call release.
	Hold(result any, release func()) bool
}

// Of returns the Holder that can hold the lease of an execution with that result, or nil if the lease must be released
// at once: nothing uses the result, the execution failed, the permits are spent, or the execution has no Holder.
//
// The lease of an attempt that failed is released at once even if there is a response, because a retry outside must get
// a permit for the next attempt, and it does not say that it drops the response.
func Of(ctx context.Context, lease limiter.Lease, result any, err error) Holder {
	if err != nil || result == nil || !lease.Lends() {
		return nil
	}
	h, _ := ctx.Value(Key{}).(Holder)
	return h
}
