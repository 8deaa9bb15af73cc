package circuitbreaker

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// OpenError is the error of an execution that was rejected because the circuit
// does not let it through. It [errors.Is] [pipeline.ErrRejected].
type OpenError struct {
	// RetryAfter is when it is worth trying again: when the break is over, or, of
	// a half-open circuit, when a probe's place would be given to another, unless
	// the circuit has opened again by then. 0: not known, of an isolated circuit.
	RetryAfter time.Duration
	// State is the circuit's: Open, HalfOpen or Isolated.
	State State
	// Source says which pipeline and which strategy rejected.
	Source pipeline.Source
	// Err is the error of the execution that opened the circuit, if it had one. It
	// is not unwrapped: it is another execution's.
	Err error
}

// Error says which circuit it is and when to come back, as far as that is known:
//
//	circuitbreaker: orders/CircuitBreaker: the circuit is open, retry after 4s
func (e *OpenError) Error() string {
	how := e.State.String()
	if e.State == HalfOpen {
		how = "half open, and being probed"
	}
	text := "circuitbreaker: the circuit is " + how
	if e.Source != (pipeline.Source{}) {
		text = fmt.Sprintf("circuitbreaker: %v: the circuit is %s", e.Source, how)
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", retry after %v", e.RetryAfter)
	}
	return text
}

// Is tells whether target is [pipeline.ErrRejected].
func (e *OpenError) Is(target error) bool { return target == pipeline.ErrRejected }

// NotCalled returns true: what the circuit protects was not called. Another circuit breaker around this one
// does not count the rejection.
func (e *OpenError) NotCalled() bool { return true }

// RetryDelay returns RetryAfter; ok is false if it is not known. See
// [pipeline.RetryAfter].
func (e *OpenError) RetryDelay() (d time.Duration, ok bool) {
	if e == nil {
		return 0, false
	}
	return e.RetryAfter, e.RetryAfter > 0
}
