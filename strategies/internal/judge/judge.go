// Package judge has what several strategies do about an outcome: they ask what its error says, report it, describe it in
// a text, and say why they gave up.
package judge

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/pipeline"
)

// Ended reports whether err says that the execution was given up, rather than that what it called failed: err matches
// [context.Canceled], or it matches [context.DeadlineExceeded] and the execution's own context is done.
//
// A context.DeadlineExceeded under a live context is a failure. The timeouts of package net and of http.Client match
// it, and so does a deadline that the callback sets for itself. A server that hangs would otherwise be neither retried
// nor replaced.
func Ended(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil
}

// Text describes what happened to an outcome, for a String method: "orders/Retry: attempt 0, next after 2s: boom". It
// leaves out a Source that is zero and an error that is nil.
func Text(source pipeline.Source, what string, err error) string {
	if s := source.String(); s != "" {
		what = s + ": " + what
	}
	if err != nil {
		what += ": " + err.Error()
	}
	return what
}

// GaveUp returns last, the error of the last attempt, joined with the reason why no other follows. attempts counts the
// last one. A nil last is that of an attempt whose result was handled.
func GaveUp(strategy string, last error, attempts int, reason error) error {
	switch {
	case last == nil:
		return fmt.Errorf("%s: gave up after attempt %d: %w", strategy, attempts, reason)
	case errors.Is(last, reason):
		return last
	default:
		return &gaveUpError{strategy, last, attempts, reason}
	}
}

// Its method Cause returns the error that telemetry names in error.type.
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
func (e *gaveUpError) Cause() error    { return e.last }

// NotCalled is that of the last failure, because the reason is not the failure of a call.
func (e *gaveUpError) NotCalled() bool { return pipeline.NotCalled(e.last) }
