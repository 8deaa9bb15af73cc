// Package unsent has the error of an attempt that a client did not make. It is what weirhttp and weirgrpc have in common.
package unsent

import (
	"errors"

	"github.com/weir-go/weir/pipeline"
)

// An Error is the error of an attempt that was not made, or that ended after the caller had its answer.
type Error struct {
	Text  string
	Later bool // the attempt can be made when the running attempts have ended
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Is reports whether target is [pipeline.ErrRejected].
func (e *Error) Is(target error) bool { return target == pipeline.ErrRejected }

// Retryable reports whether the same attempt can be made later. If it returns false, a retry stops. If it returns true,
// a hedge whose Handle is the client's Retryable goes on waiting for the attempt that still runs.
func (e *Error) Retryable() bool { return e.Later }

// NotCalled returns true: a circuit breaker or an adaptive limiter inside the strategy that made the attempt must not
// count it, because it says nothing about the server.
func (e *Error) NotCalled() bool { return true }

// Is reports whether err is or wraps an Error.
func Is(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}
