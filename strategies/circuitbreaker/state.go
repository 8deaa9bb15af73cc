package circuitbreaker

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// State is what a circuit does with executions. Its text form is "closed",
// "open", "half_open" or "isolated".
type State uint8

// The states. A new circuit is Closed.
const (
	Closed   State = iota // everything is let through
	Open                  // nothing is, until the break is over
	HalfOpen              // a few executions are, as probes
	Isolated              // nothing is, until somebody closes it: see [Control]
)

var states = [...]string{Closed: "closed", Open: "open", HalfOpen: "half_open", Isolated: "isolated"}

// String returns the text form, or State(n) for what is none.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s State) MarshalText() ([]byte, error) {
	if int(s) >= len(states) {
		return nil, fmt.Errorf("circuitbreaker: %v is no state", s)
	}
	return []byte(states[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *State) UnmarshalText(text []byte) error {
	for state, name := range states {
		if name == string(text) {
			*s = State(state)
			return nil
		}
	}
	return fmt.Errorf("circuitbreaker: state %q must be one of %s", text, strings.Join(states[:], ", "))
}

// Statistics are how a circuit is just now. What does not apply to its State is 0.
type Statistics struct {
	State State `json:"state"`
	// Throughput and Failures count what is in the sampling window of a closed
	// circuit; 0 if [Options.FailureRatio] is off.
	Throughput int64 `json:"throughput"`
	Failures   int64 `json:"failures"`
	// ConsecutiveFailures is how many failures there were in a row; 0 if
	// [Options.ConsecutiveFailures] is off.
	ConsecutiveFailures int64 `json:"consecutive_failures"`
	// Probes is how many probes of a half-open circuit have not returned; one whose
	// place was given to another is not counted.
	Probes int `json:"probes"`
	// RetryAfter is how long the break of an open circuit still takes. It is open
	// until an execution comes, also if that is 0.
	RetryAfter time.Duration `json:"retry_after"`
}

// State returns what the circuit does with executions just now.
func (s *Strategy) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state()
}

// CircuitState returns the text form of State. Telemetry reads it from the circuits that a reload has put in
// force.
func (s *Strategy) CircuitState() string { return s.State().String() }

// state is State, with the lock held.
func (s *Strategy) state() State {
	if !s.ordered() {
		return s.current.Load().state
	}
	if s.options.Control.Isolated() {
		return Isolated
	}
	return Closed
}

// Statistics returns how the circuit is just now.
func (s *Strategy) Statistics() Statistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats, p := Statistics{State: s.state()}, s.current.Load()
	if s.ordered() { // and not carried out: what p counted is of no account
		return stats
	}
	switch p.state {
	case Closed:
		counted := p.counts(clock.Now())
		stats.Throughput, stats.Failures = counted.throughput, counted.failures
		stats.ConsecutiveFailures = p.consecutive.Load()
	case Open:
		stats.RetryAfter = p.wait(clock.Now())
	case HalfOpen:
		stats.Probes = len(p.probes.running)
	}
	return stats
}

// String returns the state and what it is judged by: "closed, 3 of 10 failed, 2 failed in a row".
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
		text += fmt.Sprintf(", retry after %v", s.RetryAfter)
	}
	return text
}
