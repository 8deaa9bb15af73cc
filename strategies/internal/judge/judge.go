// Package judge has the questions about an error that several strategies ask by default.
package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// says nothing about what would have been called. Of errors that are joined all must say so: a call that
// has failed is not undone by a rejection of the next one.
func NotCalled(err error) bool {
	if e, ok := err.(interface{ NotCalled() bool }); ok {
		return e.NotCalled()
	}
	switch e := err.(type) { //nolint:errorlint // this is what unwraps
	case interface{ Unwrap() error }:
		return NotCalled(e.Unwrap())
	case interface{ Unwrap() []error }:
		joined := e.Unwrap()
		return len(joined) > 0 && !slices.ContainsFunc(joined, func(err error) bool { return !NotCalled(err) })
	}
	return false
}

// Uncalled returns err with a NotCalled that returns true: a strategy failed before it called anything.
func Uncalled(err error) error { return &uncalledError{err} }

type uncalledError struct{ error }

func (e *uncalledError) Unwrap() error   { return e.error }
func (e *uncalledError) NotCalled() bool { return true }

// GaveUp joins the last failure of so many attempts with the reason why there is no other.
func GaveUp(strategy string, last error, attempts int, reason error) error {
	return &gaveUpError{strategy, last, attempts, reason}
}

type gaveUpError struct {
	strategy string
	last     error
	attempts int
	reason   error
}

func (e *gaveUpError) Error() string {
	return fmt.Sprintf("%v; %s: gave up after attempt %d: %v", e.last, e.strategy, e.attempts, e.reason)
}

func (e *gaveUpError) Unwrap() []error { return []error{e.last, e.reason} }

// NotCalled is what the last failure says: the reason is no call that has failed.
func (e *gaveUpError) NotCalled() bool { return NotCalled(e.last) }
