package pipeline

import (
	"context"
	"slices"

	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/untimed"
)

// A Measurer is a [Listener] that also receives measurements, which strategies make in every execution, such as how
// long an execution waited for a permit and how long it held the permit. Measurements are events of severity
// [SeverityNone], with the names that the strategies document, and only a Measurer receives them.
type Measurer interface {
	Listener
	OnMeasurement(ctx context.Context, e Event)
}

// A LeaseMeasurer is a [Measurer] that needs to know which two measurements belong together: the one of the moment
// when something is acquired, such as a permit, and the one of the moment when it is released.
//
// BeginMeasurement is called instead of OnMeasurement for the first one. EndMeasurement is called instead of
// OnMeasurement for the second one, with what BeginMeasurement returned, or nil if BeginMeasurement did not return.
type LeaseMeasurer interface {
	Measurer
	BeginMeasurement(ctx context.Context, e Event) (begun any)
	EndMeasurement(ctx context.Context, e Event, begun any)
}

// BeginMeasurement calls m.BeginMeasurement if m is a [LeaseMeasurer], else m.OnMeasurement. It is for code that calls
// a Measurer without a [Next].
func BeginMeasurement(ctx context.Context, m Measurer, e Event) (begun any) {
	if l, ok := m.(LeaseMeasurer); ok {
		return l.BeginMeasurement(ctx, e)
	}
	m.OnMeasurement(ctx, e)
	return nil
}

// EndMeasurement calls m.EndMeasurement if m is a [LeaseMeasurer], else m.OnMeasurement. begun is what
// [BeginMeasurement] returned.
func EndMeasurement(ctx context.Context, m Measurer, e Event, begun any) {
	if l, ok := m.(LeaseMeasurer); ok {
		l.EndMeasurement(ctx, e, begun)
		return
	}
	m.OnMeasurement(ctx, e)
}

// Measuring reports whether the pipeline's Listener is a [Measurer].
func (n Next) Measuring() bool { return n.step != nil && n.step.measurer != nil }

// Measure sends e to the pipeline's Listener if it is a [Measurer]. It sets Source, and Severity to [SeverityNone]. It
// does not set Operation, because a Measurer is called so often that the look-up in the context would cost too much.
func (n Next) Measure(ctx context.Context, e Event) {
	if !n.Measuring() {
		return
	}
	e.Severity = SeverityNone
	e.Source = n.step.source
	n.step.measurer.OnMeasurement(ctx, e)
}

// MeasureBegin is Measure for the beginning of something whose end the caller measures with [Next.MeasureEnd], see
// [LeaseMeasurer]. The caller hands the result to MeasureEnd.
func (n Next) MeasureBegin(ctx context.Context, e Event) (begun any) {
	if n.step == nil || n.step.leases == nil {
		n.Measure(ctx, e)
		return nil
	}
	e.Severity = SeverityNone
	e.Source = n.step.source
	begun = n.step.leases.BeginMeasurement(ctx, e)
	if !n.step.measuresInstantly && untimed.Is(begun) {
		return needsDuration{begun}
	}
	return begun
}

// needsDuration hides an untimed begun from [untimed.Is], so that the strategy measures the Duration. A Measurer of
// the program can wrap one of weir's, return what that one returned, and still want the Duration for itself.
type needsDuration struct{ begun any }

// MeasureEnd is Measure for the end of something whose beginning was measured with [Next.MeasureBegin]. begun is what
// MeasureBegin returned.
func (n Next) MeasureEnd(ctx context.Context, e Event, begun any) {
	if n.step == nil || n.step.leases == nil {
		n.Measure(ctx, e)
		return
	}
	if t, ok := begun.(needsDuration); ok {
		begun = t.begun
	}
	e.Severity = SeverityNone
	e.Source = n.step.source
	n.step.leases.EndMeasurement(ctx, e, begun)
}

// MeasurerOf returns l as a Measurer, or nil if it is none. Of what [Listeners] has returned, it is the one that is a Measurer, or
// all if there are several. It is for code that calls a Measurer without a [Next].
func MeasurerOf(l Listener) Measurer {
	all, many := l.(fanOut)
	if many && all.measurers() < 2 {
		l = nil
		for _, each := range all {
			if _, ok := each.(Measurer); ok {
				l = each
			}
		}
	}
	m, _ := l.(Measurer)
	return m
}

// isInstant reports whether no time goes by in the methods of m: see [deadline.Instant].
func isInstant(m Measurer) bool {
	all, many := m.(fanOut)
	if !many {
		return deadline.IsInstant(m)
	}
	return !slices.ContainsFunc(all, func(l Listener) bool {
		each, measures := l.(Measurer)
		return measures && !deadline.IsInstant(each)
	})
}

// measurers returns the number of Measurers.
func (f fanOut) measurers() (n int) {
	for _, l := range f {
		if _, ok := l.(Measurer); ok {
			n++
		}
	}
	return n
}

// OnMeasurement hands e to the Measurers.
func (f fanOut) OnMeasurement(ctx context.Context, e Event) {
	for _, l := range f {
		if m, ok := l.(Measurer); ok {
			m.OnMeasurement(ctx, e)
		}
	}
}

// BeginMeasurement returns what the Measurer returned if there is only one, which saves an allocation, else a
// begunMeasurements.
func (f fanOut) BeginMeasurement(ctx context.Context, e Event) (begun any) {
	var all []any
	if f.measurers() > 1 {
		all = make([]any, len(f))
		begun = &begunMeasurements{of: &f[0], all: all}
	}
	called := 0
	defer func() {
		if called < len(f) { // a listener panics: the caller gets no begun, so what the others have begun ends here
			f[:called].EndMeasurement(ctx, Event{Source: e.Source}, begun)
		}
	}()
	for i, l := range f {
		if m, ok := l.(Measurer); ok && all == nil {
			begun = BeginMeasurement(ctx, m, e)
		} else if ok {
			all[i] = BeginMeasurement(ctx, m, e)
		}
		called++
	}
	return begun
}

// begunMeasurements are what the listeners of a fanOut returned from BeginMeasurement, by their index in it.
type begunMeasurements struct {
	of  *Listener // the first listener of the fanOut: a listener can return the begunMeasurements of another fanOut
	all []any
}

// EndMeasurement calls EndMeasurement of each LeaseMeasurer, with what its BeginMeasurement returned, and OnMeasurement
// of the other Measurers. If e has no name, as when BeginMeasurement calls it after a panic, it leaves the other
// Measurers out.
func (f fanOut) EndMeasurement(ctx context.Context, e Event, begun any) {
	several, _ := begun.(*begunMeasurements)
	for i, l := range f {
		if several != nil && several.of == &f[0] {
			begun = several.all[i]
		}
		if m, ok := l.(LeaseMeasurer); ok {
			m.EndMeasurement(ctx, e, begun)
		} else if m, ok := l.(Measurer); ok && e.Name != "" {
			m.OnMeasurement(ctx, e)
		}
	}
}
