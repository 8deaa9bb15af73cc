package timeout

import (
	"fmt"
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
	// Err is the error that the callback returned after that; nil in a [context.Cause]. It is not unwrapped, because it can
	// match context.DeadlineExceeded.
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
