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

// An Outcome says how an execution counts for a strategy that learns from what it calls.
type Outcome uint8

// The outcomes.
const (
	Success Outcome = iota
	Failure
	Ignored
	Refunded // ignored, and the grant of a limiter does not count either
)

// Counts returns how an outcome counts, by the option Handle or, if that is nil, by the rules of package circuitbreaker.
func Counts(ctx context.Context, handle func(result any, err error) bool, result any, err error) Outcome {
	switch {
	case handle != nil && handle(result, err):
		return Failure
	case err == nil:
		return Success
	case pipeline.NotCalled(err), errors.Is(ctx.Err(), context.Canceled):
		return Ignored // the error of a cancelled call need not match context.Canceled
	case handle == nil && (!Ended(ctx, err) || errors.Is(ctx.Err(), context.DeadlineExceeded)):
		return Failure // also if the deadline has passed during the call
	case Ended(ctx, err):
		return Ignored
	default:
		return Success
	}
}

// Handles reports whether a strategy acts on an outcome, by its option Handle or, if that is nil, by the rule of [Ended]: it acts
// on every other error.
func Handles(ctx context.Context, handle func(result any, err error) bool, result any, err error) bool {
	if handle != nil {
		return handle(result, err)
	}
	return err != nil && !Ended(ctx, err)
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
	}
	err := fmt.Errorf("%w; %s: gave up after attempt %d: %w", last, strategy, attempts, reason)
	return Explained(err, last, pipeline.NotCalled(last)) // the reason is not the failure of a call
}

// Explained returns err, which only adds to cause, with a method NotCalled that returns notCalled. It has a method Cause, by which
// telemetry finds the error to name in error.type.
func Explained(err, cause error, notCalled bool) error { return &explainedError{err, cause, notCalled} }

type explainedError struct {
	error
	cause     error
	notCalled bool
}

func (e *explainedError) Unwrap() error   { return e.error }
func (e *explainedError) Cause() error    { return e.cause }
func (e *explainedError) NotCalled() bool { return e.notCalled }
