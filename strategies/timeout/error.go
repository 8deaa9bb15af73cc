package timeout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// An Error is the error of an execution that was timed out. It matches [pipeline.ErrRejected]. It does not match
// [context.DeadlineExceeded], which is the error of the caller's own deadline, so that a retry outside makes another
// attempt.
type Error struct {
	// After is the limit that was exceeded.
	After time.Duration
	// Source is the strategy that set it.
	Source pipeline.Source
	// Err is the error that the callback returned when its context had ended; nil in a [context.Cause]. It is not
	// unwrapped, because it can match context.DeadlineExceeded.
	Err error
}

// Error returns a text with the Source and After.
func (e *Error) Error() string {
	return "timeout: " + judge.Text(e.Source, fmt.Sprintf("no result within %v", e.After), nil)
}

// Is reports whether target is [pipeline.ErrRejected].
func (e *Error) Is(target error) bool { return target == pipeline.ErrRejected }

// RetryAfter returns the wait that Err asks for. See [pipeline.RetryAfter].
func (e *Error) RetryAfter() (d time.Duration, ok bool) { return pipeline.RetryAfter(e.Err) }

// Retryable returns what Err says, or true if it does not say. See [pipeline.Retryable].
func (e *Error) Retryable() bool {
	retryable, known := pipeline.Retryable(e.Err)
	return retryable || !known
}

// NotCalled reports whether the execution ended before anything was called, because it waited in the queue of a limiter
// further inside. A circuit breaker outside does not count it then.
func (e *Error) NotCalled() bool { return pipeline.NotCalled(e.Err) }

// Timeout returns true. It makes the error a timeout in the sense of [net.Error].
func (e *Error) Timeout() bool { return true }

// timedOut reports whether an execution that returned err after the limit of the strategy was timed out by it: the
// caller's own context is not done, and err is of the kind that an ended context causes.
func timedOut(ctx context.Context, cause *Error, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, os.ErrDeadlineExceeded) || // of a connection that the context's Deadline was set on
		errors.Is(err, cause) ||
		saysTimeout(err)
}

// saysTimeout reports whether err says by a method that it is a timeout: Timeout() bool, as a net.Error has, or
// GRPCStatus with the code Canceled or DeadlineExceeded. A gRPC client returns such a status in place of the
// context's error, and errors.Is does not find the context's error in it.
//
// A rejection does not count, because it can be the [Error] of another timeout further inside.
func saysTimeout(err error) bool {
	if errors.Is(err, pipeline.ErrRejected) {
		return false
	}
	if late, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && late.Timeout() {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if code, ok := grpcCode(err); ok {
			return code == 1 || code == 4 // codes.Canceled, codes.DeadlineExceeded
		}
	}
	return false
}

// grpcCode returns the code of an error with a method GRPCStatus. It uses reflection, because the result is of a type of
// a module that this one does not import.
func grpcCode(err error) (code uint64, ok bool) {
	m := reflect.ValueOf(err).MethodByName("GRPCStatus")
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
		return 0, false
	}
	status := m.Call(nil)[0]
	if k := status.Kind(); (k == reflect.Pointer || k == reflect.Interface) && status.IsNil() {
		return 0, false
	}
	c := status.MethodByName("Code")
	if !c.IsValid() || c.Type().NumIn() != 0 || c.Type().NumOut() != 1 || c.Type().Out(0).Kind() != reflect.Uint32 {
		return 0, false
	}
	return c.Call(nil)[0].Uint(), true
}
