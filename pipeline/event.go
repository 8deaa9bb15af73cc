package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/isnil"
)

// Severity says how much an event matters. The zero value, [SeverityNone], is that of an
// event that is not reported at all. It is written "Information", and read
// whatever the case of its letters.
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

var severities = [...]string{
	SeverityNone: "None", SeverityDebug: "Debug", SeverityInformation: "Information", SeverityWarning: "Warning",
	SeverityError: "Error", SeverityCritical: "Critical",
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
	Result    any           // the value that came out, where the event is about an outcome that has one
	Err       error         // what came out or what went wrong; nil for success
	Attempt   int           // ExecutionAttempt, OnRetry: 0 for the first; OnHedging: the one that begins
	Handled   bool          // ExecutionAttempt: the strategy does something about the outcome
	Duration  time.Duration // ExecutionAttempt, PipelineExecuted, and where an event's own comment says so
}

// A Listener is told what happens in pipelines. It is called synchronously, on
// the goroutine that runs the execution, and by many at once; what it takes, the
// execution takes. A panic of it is not caught.
//
// A Listener may have a method Enabled(ctx context.Context) bool. It is asked
// when an execution begins; with false the execution reports nothing, and costs
// what it would without a Listener. It answers for every event that may follow.
// A method Forget(Source) is called by a registry when a pipeline was removed from
// it: there will be no more events of that Source, whose Strategy is empty. A method
// InForce(*Pipeline) is called by a registry when a reload has replaced the version
// of that pipeline, before the event that reports it.
type Listener interface {
	OnEvent(ctx context.Context, e Event)
}

// A Measurer is a [Listener] that is also told figures of executions in which
// nothing happened that would be worth an event: how long a permit was waited
// for, how long it was held. They come as events of severity [SeverityNone], under names
// that the strategies document, and to nobody else.
type Measurer interface {
	Listener
	OnMeasurement(ctx context.Context, e Event)
}

// A LeaseMeasurer is a [Measurer] that connects the measurement of something that is
// held, such as a permit, with the measurement of its end.
//
// BeginMeasurement is called in place of OnMeasurement when the holding begins.
// EndMeasurement is called in place of OnMeasurement when it has ended, with what
// BeginMeasurement returned, or nil if BeginMeasurement did not return.
type LeaseMeasurer interface {
	Measurer
	BeginMeasurement(ctx context.Context, e Event) (begun any)
	EndMeasurement(ctx context.Context, e Event, begun any)
}

// BeginMeasurement calls the method of that name if m is a [LeaseMeasurer], else
// OnMeasurement. It is for those who call a Measurer without a [Next].
func BeginMeasurement(ctx context.Context, m Measurer, e Event) (begun any) {
	if l, ok := m.(LeaseMeasurer); ok {
		return l.BeginMeasurement(ctx, e)
	}
	m.OnMeasurement(ctx, e)
	return nil
}

// EndMeasurement calls the method of that name if m is a [LeaseMeasurer], else
// OnMeasurement. begun is what [BeginMeasurement] returned.
func EndMeasurement(ctx context.Context, m Measurer, e Event, begun any) {
	if l, ok := m.(LeaseMeasurer); ok {
		l.EndMeasurement(ctx, e, begun)
		return
	}
	m.OnMeasurement(ctx, e)
}

// measurerOf returns l if it measures.
func measurerOf(l Listener) Measurer {
	if all, many := l.(fanOut); many && !all.measure() {
		return nil
	}
	m, _ := l.(Measurer)
	return m
}

// measuresAtOnce reports whether no time goes by while m is told something: see [deadline.Instant].
func measuresAtOnce(m Measurer) bool {
	all, many := m.(fanOut)
	if !many {
		return deadline.IsInstant(m)
	}
	return !slices.ContainsFunc(all, func(l Listener) bool {
		each := measurerOf(l)
		return each != nil && !measuresAtOnce(each)
	})
}

// A chooser is a Listener that may not be interested.
type chooser interface {
	Enabled(ctx context.Context) bool
}

// chooserOf returns l if it chooses.
func chooserOf(l Listener) chooser {
	if all, many := l.(fanOut); many && !all.choose() {
		return nil
	}
	c, _ := l.(chooser)
	return c
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
		if !isnil.Value(l) {
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

// Enabled tells whether any of them wants the events.
func (f fanOut) Enabled(ctx context.Context) bool {
	return slices.ContainsFunc(f, func(l Listener) bool {
		c := chooserOf(l)
		return c == nil || c.Enabled(ctx)
	})
}

// choose tells whether every one of them does: else there is always one who listens.
func (f fanOut) choose() bool {
	return !slices.ContainsFunc(f, func(l Listener) bool { return chooserOf(l) == nil })
}

// measure tells whether any of them does.
func (f fanOut) measure() bool {
	return slices.ContainsFunc(f, func(l Listener) bool { return measurerOf(l) != nil })
}

// OnMeasurement tells those who are Measurers.
func (f fanOut) OnMeasurement(ctx context.Context, e Event) {
	for _, l := range f {
		if m, ok := l.(Measurer); ok {
			m.OnMeasurement(ctx, e)
		}
	}
}

// BeginMeasurement returns what the only Measurer returned, or, to save an
// allocation in that case only, a begunMeasurements of several.
func (f fanOut) BeginMeasurement(ctx context.Context, e Event) (begun any) {
	var all begunMeasurements
	if f.measurers() > 1 {
		all = make(begunMeasurements, len(f))
		begun = all
	}
	called := 0
	defer func() {
		if called < len(f) { // a listener panics, and the caller gets nothing that it could end
			f[:called].EndMeasurement(ctx, Event{Source: e.Source}, begun)
		}
	}()
	for i, l := range f {
		if m, ok := l.(LeaseMeasurer); ok && all == nil {
			begun = m.BeginMeasurement(ctx, e)
		} else if ok {
			all[i] = m.BeginMeasurement(ctx, e)
		} else if m, ok := l.(Measurer); ok {
			m.OnMeasurement(ctx, e)
		}
		called++
	}
	return begun
}

// begunMeasurements are what the listeners of a fanOut returned, by their place in it.
type begunMeasurements []any

// EndMeasurement hands each LeaseMeasurer what it returned. An event without a name is for them only.
func (f fanOut) EndMeasurement(ctx context.Context, e Event, begun any) {
	all, several := begun.(begunMeasurements)
	for i, l := range f {
		if m, ok := l.(LeaseMeasurer); ok && several {
			m.EndMeasurement(ctx, e, all[i])
		} else if ok {
			m.EndMeasurement(ctx, e, begun)
		} else if m, ok := l.(Measurer); ok && e.Name != "" {
			m.OnMeasurement(ctx, e)
		}
	}
}

func (f fanOut) measurers() (n int) {
	for _, l := range f {
		if _, ok := l.(Measurer); ok {
			n++
		}
	}
	return n
}

// InForce tells those who want to know.
func (f fanOut) InForce(p *Pipeline) {
	for _, l := range f {
		if l, ok := l.(interface{ InForce(p *Pipeline) }); ok {
			l.InForce(p)
		}
	}
}

// Forget tells those who want to know.
func (f fanOut) Forget(s Source) {
	for _, l := range f {
		if l, ok := l.(interface{ Forget(Source) }); ok {
			l.Forget(s)
		}
	}
}

func (f fanOut) OnEvent(ctx context.Context, e Event) {
	for _, l := range f {
		l.OnEvent(ctx, e)
	}
}
