package pipeline_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// measuring is a Listener that can be switched off and that measures.
type measuring struct {
	off      bool
	asked    int
	events   []pipeline.Event
	measured []pipeline.Event
}

func (m *measuring) Enabled(context.Context) bool {
	m.asked++
	return !m.off
}

func (m *measuring) OnEvent(_ context.Context, e pipeline.Event) { m.events = append(m.events, e) }

func (m *measuring) OnMeasurement(_ context.Context, e pipeline.Event) {
	m.measured = append(m.measured, e)
}

// measured is a strategy that measures something.
type measured struct{ measuring, listening *bool }

func (measured) Name() string { return "Measured" }

func (m measured) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	*m.measuring, *m.listening = next.Measuring(), next.Listening()
	next.Measure(ctx, pipeline.Event{Name: "Waited", Severity: pipeline.SeverityError, Duration: 5})
	return next.Run(ctx)
}

func TestNext_MeasureCallsOnlyMeasurers(t *testing.T) {
	var isMeasuring, isListening bool
	var heard []pipeline.Event
	m := &measuring{}
	for name, l := range map[string]pipeline.Listener{
		"one":              m,
		"one of several":   pipeline.Listeners(collect(&heard), m),
		"no chooser":       nil,
		"no measurer":      collect(&heard),
		"no measurer of 2": pipeline.Listeners(collect(&heard), collect(&heard)),
	} {
		t.Run(name, func(t *testing.T) {
			*m, heard = measuring{}, nil
			p := weir.Must(pipeline.Config{
				Name: "orders", Strategies: []pipeline.Strategy{measured{&isMeasuring, &isListening}}, Listener: l,
			}.Build())
			ctx := pipeline.WithOperation(t.Context(), "read")
			require.NoError(t, p.Execute(ctx, func(context.Context) error { return nil }))
			wanted := name == "one" || name == "one of several"
			assert.Equal(t, wanted, isMeasuring)
			assert.Equal(t, l != nil, isListening)
			if wanted {
				assert.Equal(t, []pipeline.Event{{
					Name: "Waited", Duration: 5,
					Source: pipeline.Source{Pipeline: "orders", Strategy: "Measured"},
				}}, m.measured)
			}
			for _, e := range heard {
				assert.NotEqual(t, "Waited", e.Name)
			}
		})
	}
}

func TestListener_NotEnabled(t *testing.T) {
	var isMeasuring, isListening bool
	m := &measuring{off: true}
	for name, l := range map[string]pipeline.Listener{"one": m, "several": pipeline.Listeners(m, &measuring{off: true})} {
		t.Run(name, func(t *testing.T) {
			m.asked = 0
			p := weir.Must(pipeline.Config{Strategies: []pipeline.Strategy{measured{&isMeasuring, &isListening}}, Listener: l}.Build())
			require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
			assert.Equal(t, 1, m.asked, "once an execution")
			assert.Empty(t, m.events)
			assert.Empty(t, m.measured)
			assert.False(t, isMeasuring || isListening)
		})
	}
	var heard []pipeline.Event
	p := weir.Must(pipeline.Config{Listener: pipeline.Listeners(m, collect(&heard))}.Build())
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
	assert.Len(t, heard, 2, "one of them wants to hear")
}

type forgetful struct {
	pipeline.ListenerFunc
	forgotten []pipeline.Source
}

func (f *forgetful) Forget(s pipeline.Source) { f.forgotten = append(f.forgotten, s) }

func TestListeners_Forget(t *testing.T) {
	f := &forgetful{}
	l := pipeline.Listeners(&measuring{}, f)
	source := pipeline.Source{Pipeline: "orders", Instance: "eu"}
	l.(interface{ Forget(s pipeline.Source) }).Forget(source)
	assert.Equal(t, []pipeline.Source{source}, f.forgotten)
}

func TestEvent_HasTheOutcome(t *testing.T) {
	var events []pipeline.Event
	p := weir.Must(pipeline.Config{Listener: collect(&events)}.Build())
	_, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) { return "fine", nil })
	require.NoError(t, err)
	assert.Equal(t, "fine", events[1].Result)
}

// leasing is a Measurer that connects beginnings and ends.
type leasing struct {
	pipeline.ListenerFunc
	name  string
	bad   func()
	ended []any
}

func (l *leasing) OnMeasurement(context.Context, pipeline.Event) {}

func (l *leasing) BeginMeasurement(context.Context, pipeline.Event) any {
	if l.bad != nil {
		l.bad()
	}
	return l.name
}

func (l *leasing) EndMeasurement(_ context.Context, _ pipeline.Event, begun any) {
	l.ended = append(l.ended, begun)
}

func TestListeners_LeaseMeasurers(t *testing.T) {
	nothing := func(context.Context, pipeline.Event) {}
	a, b := &leasing{ListenerFunc: nothing, name: "a"}, &leasing{ListenerFunc: nothing, name: "b"}
	plain := &measuring{}
	begin := pipeline.Event{Name: "Begin"}
	for _, of := range [][]pipeline.Listener{{plain, a}, {a, plain, b}} {
		a.ended, b.ended, plain.measured = nil, nil, nil
		m := pipeline.Listeners(of...).(pipeline.LeaseMeasurer)
		begun := m.BeginMeasurement(t.Context(), begin)
		m.EndMeasurement(t.Context(), pipeline.Event{Name: "End"}, begun)
		assert.Equal(t, []any{"a"}, a.ended)
		if len(of) == 3 {
			assert.Equal(t, []any{"b"}, b.ended)
		}
		assert.Len(t, plain.measured, 2, "a Measurer gets both")
	}
}

// A wrapper is a Measurer of the program that hands everything on to another Listener.
type wrapper struct{ pipeline.LeaseMeasurer }

func TestListeners_LeaseMeasurersInAWrapper(t *testing.T) {
	nothing := func(context.Context, pipeline.Event) {}
	a, b := &leasing{ListenerFunc: nothing, name: "a"}, &leasing{ListenerFunc: nothing, name: "b"}
	inner := wrapper{pipeline.Listeners(a, b).(pipeline.LeaseMeasurer)}
	outer := pipeline.Listeners(pipeline.ListenerFunc(nothing), pipeline.ListenerFunc(nothing), inner).(pipeline.LeaseMeasurer)
	begun := outer.BeginMeasurement(t.Context(), pipeline.Event{Name: "Begin"})
	outer.EndMeasurement(t.Context(), pipeline.Event{Name: "End"}, begun)
	assert.Equal(t, []any{"a"}, a.ended)
	assert.Equal(t, []any{"b"}, b.ended)
}

// The caller gets nothing that it could end.
func TestListeners_EndMeasurementIfAnotherPanics(t *testing.T) {
	nothing := func(context.Context, pipeline.Event) {}
	a := &leasing{ListenerFunc: nothing, name: "a"}
	bad := &leasing{ListenerFunc: nothing, bad: func() { panic("bad") }}
	m := pipeline.Listeners(a, bad).(pipeline.LeaseMeasurer)
	assert.Panics(t, func() { m.BeginMeasurement(t.Context(), pipeline.Event{Name: "Begin"}) })
	assert.Equal(t, []any{"a"}, a.ended)
	assert.Empty(t, bad.ended)
}

// unusual is a Listener of what is out of the ordinary.
type unusual struct{ measuring }

func (*unusual) Executions() bool { return false }

func TestListener_WithoutExecutions(t *testing.T) {
	var attempts bool
	strange := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		attempts = next.ListeningToAttempts()
		assert.True(t, next.Listening())
		next.Report(ctx, pipeline.Event{Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityWarning})
		next.Report(ctx, pipeline.Event{Name: "OnStrange", Severity: pipeline.SeverityWarning})
		return next.Run(ctx)
	})
	all := []string{pipeline.EventPipelineExecuting + " ", pipeline.EventExecutionAttempt + " ", "OnStrange ", pipeline.EventPipelineExecuted + " "}
	u, other := &unusual{}, &measuring{}
	for name, test := range map[string]struct {
		listener pipeline.Listener
		off      bool
		other    []string
	}{
		"alone":             {listener: u},
		"alone, in a group": {listener: pipeline.Listeners(u, nil)},
		"with another":      {listener: pipeline.Listeners(other, u), other: all},
		"the other is off":  {listener: pipeline.Listeners(other, u), off: true},
	} {
		t.Run(name, func(t *testing.T) {
			*u, *other = unusual{}, measuring{off: test.off}
			p := weir.Must(pipeline.Config{Strategies: []pipeline.Strategy{strange}, Listener: test.listener}.Build())
			ctx := pipeline.WithOperation(t.Context(), "read")
			require.NoError(t, p.Execute(ctx, func(context.Context) error { return nil }))
			assert.Equal(t, []string{"OnStrange "}, names(u.events))
			assert.Equal(t, test.other, names(other.events))
			assert.Equal(t, test.other != nil, attempts)
			assert.Zero(t, u.asked, "Enabled is about executions")
			if test.other != nil {
				assert.Equal(t, "read", other.events[2].Operation)
			}
		})
	}
}
