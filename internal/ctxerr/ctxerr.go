// Package ctxerr has the error of a context that is done, and whether it is.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
)

// Of returns nil if ctx is not done, else an error that matches both ctx.Err() and [context.Cause](ctx).
func Of(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// NotBegun is Of for an execution that has called nothing: a circuit breaker does not count its error.
func NotBegun(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return notBegunError{Of(ctx)}
}

type notBegunError struct{ error }

func (e notBegunError) Unwrap() error { return e.error }

func (notBegunError) NotCalled() bool { return true }

// Closed reports whether a channel on which nothing is sent, such as that of Done, is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
