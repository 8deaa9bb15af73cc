package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Severity says how much an event matters. The zero value, [None], is that of an
// event that is not reported at all. It is written "Information", and read
// whatever the case of its letters.
type Severity uint8

// The severities, in rising order.
const (
	None Severity = iota
	Debug
	Information
	Warning
	Error
	Critical
)

var severities = [...]string{
	None: "None", Debug: "Debug", Information: "Information", Warning: "Warning", Error: "Error", Critical: "Critical",
}

// String returns the text form, or Severity(n) for what is none.
func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s Severity) MarshalText() ([]byte, error) {
	if int(s) >= len(severities) {
		return nil, fmt.Errorf("pipeline: %v is no severity", s)
	}
	return []byte(severities[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Severity) UnmarshalText(text []byte) error {
	for severity, name := range severities {
		if strings.EqualFold(name, string(text)) {
			*s = Severity(severity)
			return nil
		}
	}
	return fmt.Errorf("pipeline: severity %q must be one of %s", text, strings.Join(severities[:], ", "))
}

// The events of a pipeline as a whole, and the one that strategies share which
// may run a callback more than once.
const (
	// EventPipelineExecuting: an execution begins. Debug.
	EventPipelineExecuting = "PipelineExecuting"
	// EventPipelineExecuted: it has ended, with Duration and Err. Information.
	EventPipelineExecuted = "PipelineExecuted"
	// EventExecutionAttempt: one attempt has ended, with Attempt, Handled,
	// Duration and Err. Information when it was not handled, Warning when it
	// was, Error when it was and there is no other.
	EventExecutionAttempt = "ExecutionAttempt"
)

// An Event is something that happened in an execution. What a field does not
// apply to leaves it zero.
type Event struct {
	Name      string        // such as "OnRateLimiterRejected", "OnRetry", "OnTimeout", "ExecutionAttempt"
	Severity  Severity      // None: the event is not reported
	Source    Source        // filled in by [Next.Report]
	Operation string        // filled in by [Next.Report]
	Err       error         // what came out or what went wrong; nil for success
	Attempt   int           // ExecutionAttempt, OnRetry: 0 for the first
	Handled   bool          // ExecutionAttempt: the strategy does something about the outcome
	Duration  time.Duration // ExecutionAttempt, PipelineExecuted
}

// A Listener is told what happens in pipelines. It is called synchronously, on
// the goroutine that runs the execution, and by many at once; what it takes, the
// execution takes. A panic of it is not caught.
type Listener interface {
	OnEvent(ctx context.Context, e Event)
}

// A ListenerFunc is a [Listener] that is just a function.
type ListenerFunc func(ctx context.Context, e Event)

// OnEvent calls f.
func (f ListenerFunc) OnEvent(ctx context.Context, e Event) { f(ctx, e) }

// Listeners returns a Listener that tells every one of ls, in order. Those that
// are nil are left out; if none is left it returns nil, which costs nothing.
func Listeners(ls ...Listener) Listener {
	var all fanOut
	for _, l := range ls {
		if !isNil(l) {
			all = append(all, l)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return all
	}
}

type fanOut []Listener

func (f fanOut) OnEvent(ctx context.Context, e Event) {
	for _, l := range f {
		l.OnEvent(ctx, e)
	}
}
