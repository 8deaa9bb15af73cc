package pipeline

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-go/weir/internal/textenum"
)

// A Severity says how much an event matters. The zero value, [SeverityNone], is that of an event that is not
// reported. The text form is "Information" and so on. When it is read, upper and lower case do not matter.
type Severity uint8

// The severities, in rising order.
const (
	SeverityNone Severity = iota
	SeverityDebug
	SeverityInformation
	SeverityWarning
	SeverityError
	SeverityCritical
)

var severities = textenum.Texts[Severity]{Package: "pipeline", Type: "Severity", AnyCase: true, Texts: []string{
	SeverityNone: "None", SeverityDebug: "Debug", SeverityInformation: "Information", SeverityWarning: "Warning",
	SeverityError: "Error", SeverityCritical: "Critical",
}}

// String returns the text form, or Severity(n) for any other number.
func (s Severity) String() string { return severities.String(s) }

// MarshalText implements [encoding.TextMarshaler].
func (s Severity) MarshalText() ([]byte, error) { return severities.Marshal(s) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Severity) UnmarshalText(text []byte) error { return severities.Unmarshal(s, text) }

// The events of a pipeline as a whole, and the one that is common to the strategies that can run a callback more than
// once.
const (
	// EventPipelineExecuting means that an execution begins. Its severity is Debug.
	EventPipelineExecuting = "PipelineExecuting"
	// EventPipelineExecuted means that an execution has ended, with Duration and Err. Its severity is Information.
	EventPipelineExecuted = "PipelineExecuted"
	// EventExecutionAttempt means that one attempt has ended, with Attempt, Handled, Duration and Err. Its severity is
	// Information if the outcome was not handled, Warning if it was, and Error if it was and no other attempt follows.
	EventExecutionAttempt = "ExecutionAttempt"
)

// An Event is something that happened in an execution. Listeners get it, and so do functions of a strategy's options, such
// as OnRetry. A field that does not apply is zero.
type Event struct {
	Name      string        // such as "OnRateLimiterRejected", "OnRetry", "OnTimeout", "ExecutionAttempt"
	Severity  Severity      // SeverityNone: the event is not reported
	Source    Source        // set by [Next.Report]
	Operation string        // set by [Next.Report] for a Listener
	Result    any           // the value of the outcome that the event reports, or nil
	Err       error         // the error of the outcome, or what went wrong; nil for success
	Attempt   int           // the attempt that has ended or, in OnHedging, the one that starts; 0 is the first
	Handled   bool          // ExecutionAttempt: the strategy acts on the outcome
	Duration  time.Duration // ExecutionAttempt, PipelineExecuted, and where the comment of an event says so
}

// String returns what happened and where, without the Result: "OnRetry Warning orders/Retry: boom".
func (e Event) String() string {
	text := fmt.Sprintf("%s %v", e.Name, e.Severity)
	if source := e.Source.String(); source != "" {
		text += " " + source
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]: an event is logged as its String, because the Result can be confidential.
func (e Event) LogValue() slog.Value { return slog.StringValue(e.String()) }
