package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of pipelines. Some come wrapped in a text with the details: compare
// with [errors.Is].
var (
	// ErrRejected is matched by every error with which a strategy turns an
	// execution away: a rate limiter's, an open circuit's, a timeout's.
	ErrRejected = errors.New("pipeline: execution rejected")
	// ErrClosed is returned by executions that start after [Pipeline.Close].
	ErrClosed = errors.New("pipeline: closed")
	// ErrInvalidConfig is returned by [Config.Build] and [New].
	ErrInvalidConfig = errors.New("pipeline: invalid configuration")
	// ErrResultType is returned by [ExecuteValue] where a strategy made up a
	// value that is not of the caller's type.
	ErrResultType = errors.New("pipeline: a strategy returned a value of the wrong type")
	// ErrAborted is the Err of a PipelineExecuted event whose execution did not
	// return: it panicked or called [runtime.Goexit]. No execution returns it.
	ErrAborted = errors.New("pipeline: execution panicked or left its goroutine")
)

// ContextError returns nil if ctx is not done, else an error that [errors.Is]
// both ctx.Err() and [context.Cause](ctx). It is what an execution returns that
// finds its context done, and what a strategy should return that gives up
// because of its context.
func ContextError(ctx context.Context) error {
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

// IsContextError reports whether err, or what it wraps, is [context.Canceled] or
// [context.DeadlineExceeded].
//
// It does not say whose context has ended. The timeouts of package net and of
// [net/http.Client] match context.DeadlineExceeded, too, and such a timeout is a
// failure like any other. So the strategies of weir leave a context.DeadlineExceeded
// alone only if the execution's own context is done: ctx.Err() != nil. They leave
// context.Canceled alone in any case.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// RetryAfter returns how long err asks its caller to wait before another try. ok
// is false if it does not say.
//
// An error says so with a method
//
//	RetryAfter() (time.Duration, bool)
//
// or, where it has a field of that name,
//
//	RetryDelay() (time.Duration, bool)
//
// The whole tree of err is searched, as [errors.As] does. An error that says
// something speaks for all that it wraps; of joined errors the one that asks for
// the longest wait counts. The result is never negative.
func RetryAfter(err error) (d time.Duration, ok bool) {
	for err != nil {
		if d, ok = ownRetryAfter(err); ok {
			return max(d, 0), true
		}
		switch e := err.(type) { //nolint:errorlint // this is the walk that errors.As would do, one step of it
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return longestRetryAfter(e.Unwrap())
		default:
			return 0, false
		}
	}
	return 0, false
}

func longestRetryAfter(errs []error) (longest time.Duration, ok bool) {
	for _, err := range errs {
		if d, known := RetryAfter(err); known {
			longest, ok = max(longest, d), true
		}
	}
	return longest, ok
}

func ownRetryAfter(err error) (time.Duration, bool) {
	if e, is := err.(interface {
		RetryAfter() (time.Duration, bool)
	}); is {
		if d, ok := e.RetryAfter(); ok {
			return d, true
		}
	}
	if e, is := err.(interface {
		RetryDelay() (time.Duration, bool)
	}); is {
		return e.RetryDelay()
	}
	return 0, false
}
