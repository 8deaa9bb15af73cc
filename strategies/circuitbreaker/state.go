package circuitbreaker

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// A State says what a circuit does with executions. Its text form is "closed", "open", "half_open" or "isolated".
type State uint8

// The states. A new circuit is Closed.
const (
	Closed   State = iota // lets every execution through
	Open                  // rejects executions until the break is over
	HalfOpen              // lets a few executions through, as probes
	Isolated              // rejects executions until [Control.Reset]
)

var states = textenum.Texts[State]{Package: "circuitbreaker", Type: "State", Texts: []string{
	Closed: "closed", Open: "open", HalfOpen: "half_open", Isolated: "isolated",
}}

// String returns the text form, or State(n) for any other number.
func (s State) String() string { return states.String(s) }

// MarshalText implements [encoding.TextMarshaler].
func (s State) MarshalText() ([]byte, error) { return states.Marshal(s) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *State) UnmarshalText(text []byte) error { return states.Unmarshal(s, text) }

// A Control opens and closes circuits by hand: those of all strategies that have it as their [Options.Control]. The
// zero Control is ready to use and leaves the circuits alone. It is safe for concurrent use, and must not be copied.
//
// Isolate and Reset apply at once, also to strategies that are made later. A Control does not know its strategies:
// each strategy looks at the Control in its next execution, and when a probe ends. The execution that finds a change
// reports the event and calls [Options.OnOpened] or [Options.OnClosed].
type Control struct {
	// version is 2 × the number of calls of Isolate and Reset, plus 1 if the last one was Isolate. It only grows, so that a
	// strategy sees that there was a call since it last looked.
	version atomic.Uint64
}

// Isolate opens the circuits until [Control.Reset]. Executions that run already go on, and their outcomes do not count.
func (c *Control) Isolate() {
	for old := c.version.Load(); !isolated(old) && !c.version.CompareAndSwap(old, old+3); old = c.version.Load() {
	}
}

// Reset closes the circuits, whatever opened them, and resets their counts.
func (c *Control) Reset() {
	for old := c.version.Load(); !c.version.CompareAndSwap(old, (old+2)&^1); old = c.version.Load() {
	}
}

// Isolated reports whether the last call was Isolate.
func (c *Control) Isolated() bool { return isolated(c.version.Load()) }

func isolated(version uint64) bool { return version&1 == 1 }

// A Transition is a change of a circuit's State, as the functions in the [Options] get it.
type Transition struct {
	From, To State
	Source   pipeline.Source // the strategy and its pipeline
	Manual   bool            // a Control ordered it
	// HalfOpenAttempts is how often the circuit was half open since it was last closed: 0 if it opens for the first
	// time.
	HalfOpenAttempts int
	// BreakDuration is how long the circuit stays open. It is 0 unless To is Open. When [Options.BreakDurationFunc]
	// is called, it is [Options.BreakDuration].
	BreakDuration time.Duration
	// Throughput and Failures are the counts of the sampling window, if FailureRatio is on and a closed circuit opens.
	Throughput, Failures int64
	// ConsecutiveFailures is the number of failures in a row, if that rule is on and a closed circuit opens.
	ConsecutiveFailures int64
	// Result and Err are the outcome that opened or closed the circuit. Err is [pipeline.ErrAborted] if the execution
	// panicked.
	Result any
	Err    error
}

// String returns the Source, the states and the Err: "orders/CircuitBreaker: closed to open: boom".
func (t Transition) String() string {
	return judge.Text(t.Source, fmt.Sprintf("%v to %v", t.From, t.To), t.Err)
}

// LogValue implements [slog.LogValuer] with [Transition.String], because the Result can be confidential.
func (t Transition) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Statistics are the figures of a circuit at one moment. A figure that does not apply to its State is 0.
type Statistics struct {
	// State is how the circuit would treat an execution now. A circuit whose break is over is HalfOpen, although only the
	// next execution reports [EventHalfOpened].
	State State `json:"state"`
	// Throughput and Failures are the counts of the sampling window of a closed circuit; 0 if [Options.FailureRatio] is
	// off.
	Throughput int64 `json:"throughput"`
	Failures   int64 `json:"failures"`
	// ConsecutiveFailures is the number of failures in a row; 0 if [Options.ConsecutiveFailures] is off.
	ConsecutiveFailures int64 `json:"consecutive_failures"`
	// Probes is the number of running probes of a half-open circuit, without those whose place was given to another.
	Probes int `json:"probes"`
	// RetryAfter is how long the circuit goes on rejecting: until the break is over, or until an execution can take the
	// place of a probe. It is 0 if the next execution is let through. For an Isolated circuit it is not known, and 0.
	RetryAfter time.Duration `json:"retry_after"`
}

// String returns the state and the figures that are not 0: "closed, 3 of 10 failed, 2 failed in a row".
func (s Statistics) String() string {
	text := s.State.String()
	if s.Throughput > 0 {
		text += fmt.Sprintf(", %d of %d failed", s.Failures, s.Throughput)
	}
	if s.ConsecutiveFailures > 0 {
		text += fmt.Sprintf(", %d failed in a row", s.ConsecutiveFailures)
	}
	if s.Probes > 0 {
		text += fmt.Sprintf(", %d probes running", s.Probes)
	}
	if s.RetryAfter > 0 {
		text += ", " + durationtext.Wait(s.RetryAfter)
	}
	return text
}

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
