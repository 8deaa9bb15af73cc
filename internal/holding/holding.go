// Package holding lets a strategy hold what it has acquired for an execution for longer than the execution: a request to a
// server has not ended when the header of its response is there, but when the body has been read or closed.
package holding

import "context"

// Key asks the context of an execution for its [Holder].
type Key struct{}

// A Holder knows when the result of an execution is no longer in use. Its methods do nothing for a result that is not of
// that execution.
type Holder interface {
	// Hold arranges that release is called once, when result is no longer in use, and returns true. If result is not in
	// use, Hold returns false, and the caller calls release.
	Hold(result any, release func()) bool
	// Release calls the functions that Hold was given for result.
	Release(result any)
	// Drop is Release for a result that the caller does not return.
	Drop(result any)
}

// Of returns the Holder that can hold the lease of an execution with that result, or nil if the lease must be released
// at once: nothing uses the result, the execution failed, the permits are spent and not lent, or the execution has no Holder.
//
// The lease of an attempt that failed is released at once even if there is a response, because a retry outside must get
// a permit for the next attempt.
func Of(ctx context.Context, lends bool, result any, err error) Holder {
	if err != nil || !lends {
		return nil
	}
	return holderOf(ctx, result)
}

// Release gives back what is held for a result that a strategy handles as a failure, although it may return it: what the
// strategy does next, such as another attempt, must get a permit.
func Release(ctx context.Context, result any) {
	if h := holderOf(ctx, result); h != nil {
		h.Release(result)
	}
}

// Drop gives back what is held for a result that a strategy does not return.
func Drop(ctx context.Context, result any) {
	if h := holderOf(ctx, result); h != nil {
		h.Drop(result)
	}
}

func holderOf(ctx context.Context, result any) Holder {
	if result == nil {
		return nil
	}
	h, _ := ctx.Value(Key{}).(Holder)
	return h
}
