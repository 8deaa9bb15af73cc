// Package judge has the questions about an error that several strategies ask by default.
package judge

import (
	"context"
	"errors"
)

// Ended reports whether err says that the execution was given up, rather than that what it called failed:
// err is [context.Canceled], or it is [context.DeadlineExceeded] and the execution's own context is done.
//
// A context.DeadlineExceeded under a live context is a failure. The timeouts of package net and of
// http.Client match it, and so does a deadline that the callback sets for itself. A server that hangs
// would otherwise be neither retried nor replaced.
func Ended(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil
}

// NotCalled reports whether err says that nothing was called: a strategy rejected the execution before.
// Such an error has a method NotCalled() bool, as a rate limiter's rejection and an open circuit's have. It
// says nothing about what would have been called.
func NotCalled(err error) bool {
	rejection, ok := errors.AsType[interface {
		error
		NotCalled() bool
	}](err)
	return ok && rejection.NotCalled()
}
