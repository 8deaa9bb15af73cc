package circuitbreaker

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/internal/textenum"
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
