package pipeline_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// journal is a Listener that notes what it is told.
type journal struct {
	off, rare bool
	lines     []string
}

func (j *journal) add(format string, args ...any) {
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns what was noted since the last call.
func (j *journal) take() []string {
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		Rare:    j.rare,
		Enabled: func(context.Context) bool { j.add("Enabled"); return !j.off },
		OnEvent: func(_ context.Context, e pipeline.Event) { j.add("%s %s", e.Name, e.Operation) },
		OnMeasurement: func(_ context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			j.add("measured %s %v %v %s", e.Name, e.Source, e.Duration, e.Operation)
			return func(_ context.Context, e pipeline.Event) { j.add("ended %s", e.Name) }
		},
		InForce: func(p *pipeline.Pipeline) { j.add("InForce %s", p.Name()) },
		Forget:  func(s pipeline.Source) { j.add("Forget %v", s) },
	}
}

// busy is a strategy that reports and measures.
type busy struct{ measuring, listening, attempts bool }

func (*busy) Name() string { return "Busy" }

func (b *busy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	b.measuring, b.listening, b.attempts = next.Measuring(), next.Listening(), next.ListeningToAttempts()
	if ended := next.Measure(ctx, pipeline.Event{Name: "Waited", Severity: pipeline.SeverityError, Duration: 5}); ended != nil {
		defer ended(ctx, pipeline.Event{Name: "Held"})
	}
	next.ReportAttempt(ctx, pipeline.Event{Severity: pipeline.SeverityWarning})
	next.Report(ctx, pipeline.Event{Name: "OnBusy", Severity: pipeline.SeverityWarning})
	return next.Run(ctx)
}

func TestListeners(t *testing.T) {
	const measured, ended = "measured Waited orders/Busy 5ns ", "ended Held"
	all := []string{"PipelineExecuting read", measured, "ExecutionAttempt read", "OnBusy read", ended, "PipelineExecuted read"}
	enabled := append([]string{"Enabled"}, all...)
	asked := []string{"Enabled"}
	rare := []string{measured, "OnBusy ", ended}
	rareBeside := []string{measured, "OnBusy read", ended}
	on, off, unusual := &journal{}, &journal{off: true}, &journal{rare: true}
	var plain []pipeline.Event
	for _, c := range []struct {
		listener         pipeline.Listener
		on, off, unusual []string
		plain            int
	}{
		{nil, nil, nil, nil, 0},
		{(*journal)(nil), nil, nil, nil, 0},
		{collect(&plain), nil, nil, nil, 4},
		{on, enabled, nil, nil, 0},
		{off, nil, asked, nil, 0},
		{unusual, nil, nil, rare, 0},
		{pipeline.Listeners(on, nil), enabled, nil, nil, 0},
		{pipeline.Listeners(on, off), enabled, all, nil, 0},
		{pipeline.Listeners(off, on), enabled, append([]string{"Enabled"}, all...), nil, 0},
		{pipeline.Listeners(off, collect(&plain)), nil, all, nil, 4},
		{pipeline.Listeners(on, pipeline.Listeners(unusual, collect(&plain))), all, nil, rareBeside, 4},
		{pipeline.Listeners(unusual, off), nil, asked, rare, 0},
		{pipeline.Listeners(unusual, on), enabled, nil, rareBeside, 0},
	} {
		plain = nil
		b := &busy{}
		p := weir.Must(pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{b}, Listener: c.listener}.Build())
		ctx := pipeline.WithOperation(t.Context(), "read")
		require.NoError(t, p.Execute(ctx, func(context.Context) error { return nil }))
		assert.Equal(t, c.on, on.take())
		assert.Equal(t, c.off, off.take())
		assert.Equal(t, c.unusual, unusual.take())
		assert.Len(t, plain, c.plain)
		assert.Equal(t, len(c.on)+c.plain > 0, b.attempts)
		assert.Equal(t, len(c.on)+len(c.unusual)+c.plain > 0, b.listening)
		assert.Equal(t, len(c.on) > 1 || len(c.off) > 1 || c.unusual != nil, b.measuring)
	}
}

func TestListeners_HooksOfRegistries(t *testing.T) {
	assert.Zero(t, pipeline.HooksOf(nil))
	assert.Nil(t, pipeline.Listeners(nil, (*journal)(nil), pipeline.ListenerFunc(nil)))
	a, b := &journal{}, &journal{}
	h := pipeline.HooksOf(pipeline.Listeners(pipeline.ListenerFunc(func(context.Context, pipeline.Event) {}), a, b))
	h.InForce(weir.Must(pipeline.New("orders")))
	h.Forget(pipeline.Source{Pipeline: "orders", Instance: "eu"})
	assert.Equal(t, []string{"InForce orders", "Forget orders/eu"}, a.take())
	assert.Equal(t, []string{"InForce orders", "Forget orders/eu"}, b.take())
}

func TestNext_Announce(t *testing.T) {
	var events, hooked []pipeline.Event
	s := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		e := pipeline.Event{Name: "OnBusy", Severity: pipeline.SeverityWarning}
		next.Announce(ctx, e, func(_ context.Context, e pipeline.Event) {
			assert.Equal(t, "OnBusy", events[1].Name, "the Listener comes first")
			hooked = append(hooked, e)
		})
		next.Announce(ctx, e, nil)
		return nil, nil
	})
	p := weir.Must(pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{s}, Listener: collect(&events)}.Build())
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
	assert.Equal(t, []pipeline.Event{{Name: "OnBusy", Severity: pipeline.SeverityWarning, Source: pipeline.Source{Pipeline: "orders"}}}, hooked)
	assert.Len(t, events, 4)
}
