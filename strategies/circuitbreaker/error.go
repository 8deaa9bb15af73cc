package circuitbreaker

import (
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// An OpenError is the error of an execution that the circuit rejected. It matches [pipeline.ErrRejected].
type OpenError struct {
	// State is the state of the circuit: Open, HalfOpen or Isolated.
	State State
	// Source is the strategy that rejected, and its pipeline.
	Source pipeline.Source
	// Err is the error of the execution that opened the circuit, if it had one. It is not unwrapped, because it is
	// another execution's.
	Err error

	retryAfter time.Duration // 0 if it is not known
	retryable  bool          // see Options.RetryRejections
}

// Error returns a text with the Source, the State, and the wait if it is known:
//
//	circuitbreaker: orders/CircuitBreaker: the circuit is open, retry after 4s
func (e *OpenError) Error() string {
	how := e.State.String()
	if e.State == HalfOpen {
		how = "half open, and being probed"
	}
	if e.retryAfter > 0 {
		how += ", " + durationtext.Wait(e.retryAfter)
	}
	return "circuitbreaker: " + judge.Text(e.Source, "the circuit is "+how, nil)
}

// Is reports whether target is [pipeline.ErrRejected].
func (e *OpenError) Is(target error) bool { return target == pipeline.ErrRejected }

// NotCalled returns true: the circuit did not let the call through. Another circuit breaker outside this one does not
// count the rejection.
func (e *OpenError) NotCalled() bool { return true }

// Retryable returns [Options.RetryRejections], which is false by default. A retry outside then returns the rejection at once,
// unless its Handle returns true for it, and then waits for RetryAfter, or if that is not known as after any other error.
func (e *OpenError) Retryable() bool { return e.retryable }

// RetryAfter returns how long to wait before the next attempt: until the break is over. ok is false if that is not known, as
// for a circuit that is isolated, or half open: then it closes as soon as its probes have succeeded. See
// [pipeline.RetryAfter].
func (e *OpenError) RetryAfter() (d time.Duration, ok bool) {
	return e.retryAfter, e.retryAfter > 0
}
