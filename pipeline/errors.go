package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/recovered"
)

// Errors of pipelines. Some are wrapped in a text with the details: compare with [errors.Is].
var (
	// ErrRejected is matched by every error with which a strategy rejects an execution, such as those of a rate
	// limiter, an open circuit and a timeout.
	ErrRejected = errors.New("pipeline: execution rejected")
	// ErrClosed is returned by executions that begin after [Pipeline.Close]. It is [NotCalled], and not [Retryable].
	ErrClosed error = closedError{}
	// ErrResultType is returned by [ExecuteValue] if a strategy returned a value that is not of the caller's type.
	ErrResultType = errors.New("pipeline: a strategy returned a value of the wrong type")
	// ErrAborted is the Err of a PipelineExecuted event whose execution did not return: it panicked or called
	// [runtime.Goexit]. No execution returns it.
	ErrAborted = recovered.ErrAborted
)

type closedError struct{}

func (closedError) Error() string   { return "pipeline: closed" }
func (closedError) NotCalled() bool { return true }
func (closedError) Retryable() bool { return false }

// A PanicError is a panic, or a [runtime.Goexit], of a function of the program that ran in a goroutine of its own, such as a
// callback in a hedge. Its Value any is that of the panic, or nil for a Goexit, and Stack []byte is the stack of that goroutine. It
// matches [ErrAborted], and the Value if that is an error. No execution returns it: the strategy calls its method Continue
// in the caller's goroutine, which panics with the Value, or calls Goexit.
type PanicError = recovered.PanicError

// Recovered returns a PanicError of what [recover] returned, in a deferred function of code that did not return.
func Recovered(value any) *PanicError { return recovered.NewPanicError(value) }

// ContextError returns nil if ctx is not done, else an error that matches both ctx.Err() and [context.Cause](ctx). An
// execution whose context is done returns it, and so should a strategy that gives up because its context is done, before a
// call in an error that is [NotCalled].
func ContextError(ctx context.Context) error { return ctxerr.Of(ctx) }

// IsContextError reports whether err, or an error that it wraps, is [context.Canceled] or [context.DeadlineExceeded].
//
// It does not say whose context has ended. The timeouts of package net and of [net/http.Client] match
// context.DeadlineExceeded, too, and are failures like any other. So the strategies of weir leave a
// context.DeadlineExceeded alone only if the execution's own context is done: ctx.Err() != nil. They leave
// context.Canceled alone in any case.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// RetryAfter returns how long err asks the caller to wait before the next attempt. ok is false if err does not say.
//
// An error says so with a method
//
//	RetryAfter() (time.Duration, bool)
//
// RetryAfter searches the whole tree of err, as [errors.As] does. An error that has an answer hides the errors that it
// wraps. For joined errors it returns the longest wait. The result is never negative.
func RetryAfter(err error) (d time.Duration, ok bool) {
	if e, is := err.(interface {
		RetryAfter() (time.Duration, bool)
	}); is {
		if d, ok := e.RetryAfter(); ok {
			return max(d, 0), true
		}
	}
	switch e := err.(type) { //nolint:errorlint // the types that unwrap
	case interface{ Unwrap() error }:
		return RetryAfter(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if one, says := RetryAfter(err); says {
				d, ok = max(d, one), true
			}
		}
	}
	return d, ok
}

// NotCalled reports whether err says that nothing was called: a strategy rejected the execution before, or the context
// ended while the execution waited for a permit. It says nothing about what would have been called, so a circuit breaker
// does not count it. Outside a retry it is about the last attempt: earlier ones can have been calls.
//
// An error says so with a method NotCalled() bool that returns true. NotCalled searches what err wraps. Of joined errors
// all must say so: a rejection of the second call does not undo the failure of the first.
func NotCalled(err error) bool {
	if e, ok := err.(interface{ NotCalled() bool }); ok {
		return e.NotCalled()
	}
	switch e := err.(type) { //nolint:errorlint // the types that unwrap
	case interface{ Unwrap() error }:
		return NotCalled(e.Unwrap())
	case interface{ Unwrap() []error }:
		joined := e.Unwrap()
		return len(joined) > 0 && !slices.ContainsFunc(joined, func(err error) bool { return !NotCalled(err) })
	}
	return false
}

// Retryable reports what err says about another attempt: retryable is false if it would be in vain or must not be made, as
// after the rejection of an open circuit. known is false if err does not say.
//
// An error says so with a method Retryable() bool. Retryable searches what err wraps. Of joined errors all that say must say
// true: what forbids another attempt is not undone by another error.
func Retryable(err error) (retryable, known bool) {
	if e, ok := err.(interface{ Retryable() bool }); ok {
		return e.Retryable(), true
	}
	switch e := err.(type) { //nolint:errorlint // the types that unwrap
	case interface{ Unwrap() error }:
		return Retryable(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if may, says := Retryable(err); says {
				retryable, known = may && (retryable || !known), true
			}
		}
	}
	return retryable, known
}
