package pipeline

import (
	"context"
	"slices"

	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/isnil"
)

// A Listener receives the events of pipelines. It is called synchronously, in the goroutine that runs the execution, and
// by many goroutines at once; the execution waits for it. A panic in it is not recovered.
//
// A Listener can have more methods:
//
//   - Enabled(ctx context.Context) bool is called when an execution begins. If it returns false, the execution reports
//     nothing, and costs what it would without a Listener.
//   - Forget(Source) is called by a registry when a pipeline was removed: there are no more events of that Source,
//     whose Strategy is empty.
//   - InForce(*Pipeline) is called by a registry when a reload has replaced the version of that pipeline, before the
//     event that reports it.
type Listener interface {
	OnEvent(ctx context.Context, e Event)
}

// A Measurer is a [Listener] that also receives the measurements of executions in which nothing happened that would be
// an event, such as how long a permit was waited for and how long it was held. They are events of severity
// [SeverityNone], with the names that the strategies document, and only a Measurer receives them.
type Measurer interface {
	Listener
	OnMeasurement(ctx context.Context, e Event)
}

// A LeaseMeasurer is a [Measurer] that connects the measurement of something that is held, such as a permit, with the
// measurement of its end.
//
// BeginMeasurement is called instead of OnMeasurement when the holding begins. EndMeasurement is called instead of
// OnMeasurement when it has ended, with what BeginMeasurement returned, or nil if BeginMeasurement did not return.
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

// measurerOf returns l if it measures, else nil.
func measurerOf(l Listener) Measurer {
	if all, many := l.(fanOut); many && !all.anyMeasures() {
		return nil
	}
	m, _ := l.(Measurer)
	return m
}

// measuresInstantly reports whether no time goes by in the methods of m: see [deadline.Instant].
func measuresInstantly(m Measurer) bool {
	all, many := m.(fanOut)
	if !many {
		return deadline.IsInstant(m)
	}
	return !slices.ContainsFunc(all, func(l Listener) bool {
		each := measurerOf(l)
		return each != nil && !measuresInstantly(each)
	})
}

// A chooser is a Listener that does not want the events of every execution.
type chooser interface {
	Enabled(ctx context.Context) bool
}

// chooserOf returns l if it chooses, else nil.
func chooserOf(l Listener) chooser {
	if all, many := l.(fanOut); many && !all.allChoose() {
		return nil
	}
	c, _ := l.(chooser)
	return c
}

// A ListenerFunc is a function that is a [Listener].
type ListenerFunc func(ctx context.Context, e Event)

// OnEvent calls f.
func (f ListenerFunc) OnEvent(ctx context.Context, e Event) { f(ctx, e) }

// Listeners returns a Listener that hands events to each of ls, in order. It leaves out nil listeners. If none is
// left, it returns nil.
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

// A fanOut is the Listener of several. It has the methods of all optional interfaces, and each method calls the
// listeners that have it.
type fanOut []Listener

// OnEvent hands e to every listener.
func (f fanOut) OnEvent(ctx context.Context, e Event) {
	for _, l := range f {
		l.OnEvent(ctx, e)
	}
}

// Enabled reports whether at least one listener wants the events.
func (f fanOut) Enabled(ctx context.Context) bool {
	return slices.ContainsFunc(f, func(l Listener) bool {
		c := chooserOf(l)
		return c == nil || c.Enabled(ctx)
	})
}

// allChoose reports whether every listener is a chooser. If one is not, Enabled is always true.
func (f fanOut) allChoose() bool {
	return !slices.ContainsFunc(f, func(l Listener) bool { return chooserOf(l) == nil })
}

// anyMeasures reports whether at least one listener measures.
func (f fanOut) anyMeasures() bool {
	return slices.ContainsFunc(f, func(l Listener) bool { return measurerOf(l) != nil })
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
	var all begunMeasurements
	if f.measurers() > 1 {
		all = make(begunMeasurements, len(f))
		begun = all
	}
	called := 0
	defer func() {
		if called < len(f) { // a listener panics, so the caller gets no begun to end those before it with
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

// begunMeasurements are what the listeners of a fanOut returned from BeginMeasurement, by their index in it.
type begunMeasurements []any

// EndMeasurement hands each LeaseMeasurer what it returned, and e to the other Measurers unless e has no name.
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

// measurers returns the number of Measurers.
func (f fanOut) measurers() (n int) {
	for _, l := range f {
		if _, ok := l.(Measurer); ok {
			n++
		}
	}
	return n
}

// InForce calls the listeners that have the method.
func (f fanOut) InForce(p *Pipeline) {
	for _, l := range f {
		if l, ok := l.(interface{ InForce(p *Pipeline) }); ok {
			l.InForce(p)
		}
	}
}

// Forget calls the listeners that have the method.
func (f fanOut) Forget(s Source) {
	for _, l := range f {
		if l, ok := l.(interface{ Forget(Source) }); ok {
			l.Forget(s)
		}
	}
}
