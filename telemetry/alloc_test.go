package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/telemetry"
)

// An execution allocates as much as it does when nobody listens.
func TestAllocationsOfAnExecution(t *testing.T) {
	measure := func(l pipeline.Listener, fn func(context.Context) error) float64 {
		p := ordinary(t, l)
		ctx := pipeline.WithOperation(t.Context(), "list")
		return testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, fn) })
	}
	heard, _ := withReader(telemetry.Options{LeaseDuration: true, Logger: slog.New(slog.DiscardHandler)})
	canceled := func(context.Context) error { return context.Canceled }
	for name, fn := range map[string]func(context.Context) error{"success": succeed, "failure": canceled} {
		bare := measure(nil, fn)
		assert.Equal(t, bare, measure(unheard(t), fn), name)
		assert.Equal(t, bare, measure(newTelemetry(t, heard), fn), name)
	}
}

func TestAllocationsOfEvents(t *testing.T) {
	o, _ := withReader(telemetry.Options{MaxSeries: 20})
	l := newTelemetry(t, o)
	source := pipeline.Source{Pipeline: "orders", Strategy: "Retry"}
	rejected := &ratelimit.RejectedError{Source: source}
	for _, e := range []pipeline.Event{
		{Name: pipeline.EventPipelineExecuting, Severity: pipeline.Debug, Source: source},
		{Name: pipeline.EventPipelineExecuted, Severity: pipeline.Information, Source: source, Operation: "list", Err: rejected},
		{Name: pipeline.EventExecutionAttempt, Severity: pipeline.Warning, Source: source, Err: errors.Join(rejected), Attempt: 3, Handled: true},
		{Name: retry.EventOnRetry, Severity: pipeline.Warning, Source: source, Err: rejected},
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.OnEvent(t.Context(), e) }), e.Name)
	}
	operations := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u"}
	n := 0
	beyond := func() {
		l.OnEvent(t.Context(), pipeline.Event{Name: "E", Severity: pipeline.Debug, Source: source, Operation: operations[n%len(operations)]})
		n++
	}
	for range operations {
		beyond()
	}
	assert.Zero(t, testing.AllocsPerRun(100, beyond), "also beyond the bound")
	for _, name := range []string{ratelimit.MeasureRequest, ratelimit.MeasureLease} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.OnMeasurement(t.Context(), pipeline.Event{Name: name, Source: source}) }), name)
	}
}
