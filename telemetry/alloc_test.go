package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/telemetry"
)

// An execution allocates as much as without a listener.
func TestOnEvent_AllocationsOfAnExecution(t *testing.T) {
	measure := func(l pipeline.Listener, fn func(context.Context) error) float64 {
		p := ordinary(t, l)
		ctx := pipeline.WithOperation(t.Context(), "list")
		return testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, fn) })
	}
	heard, _ := withReader(telemetry.Options{LeaseDuration: true, Logger: slog.New(slog.DiscardHandler)})
	canceled := func(context.Context) error { return context.Canceled }
	for name, fn := range map[string]func(context.Context) error{"success": succeed, "failure": canceled} {
		bare := measure(nil, fn)
		assert.Equal(t, bare, measure(unread(t), fn), name)
		assert.Equal(t, bare, measure(newTelemetry(t, heard), fn), name)
	}
}

// A span allocates as much as the SDK and its options.
func TestOnEvent_AllocationsOfSpans(t *testing.T) {
	tracer := sdktrace.NewTracerProvider().Tracer("bare")
	attributes := trace.WithAttributes(attribute.String("event.name", "PipelineExecuted"),
		attribute.String("event.severity", "Information"), attribute.String("pipeline.name", "orders"))
	began := time.Now()
	bare := testing.AllocsPerRun(100, func() {
		_, span := tracer.Start(t.Context(), "pipeline orders", trace.WithTimestamp(began), attributes)
		span.End(trace.WithTimestamp(began))
	})
	l := newTelemetry(t, telemetry.Options{TracerProvider: sdktrace.NewTracerProvider()})
	executed := pipeline.Event{Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation, Source: pipeline.Source{Pipeline: "orders"}}
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { l.Hooks().OnEvent(t.Context(), executed) }), bare)
}

func TestOnEvent_Allocations(t *testing.T) {
	o, _ := withReader(telemetry.Options{MaxSeries: 20})
	l := newTelemetry(t, o)
	source := pipeline.Source{Pipeline: "orders", Strategy: "Retry"}
	rejected := &ratelimit.RejectedError{Source: source}
	for _, e := range []pipeline.Event{
		{Name: pipeline.EventPipelineExecuting, Severity: pipeline.SeverityDebug, Source: source},
		{Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation, Source: source, Operation: "list", Err: rejected},
		{Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityWarning, Source: source, Err: errors.Join(rejected), Attempt: 3, Handled: true},
		{Name: retry.EventRetry, Severity: pipeline.SeverityWarning, Source: source, Err: rejected},
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { l.Hooks().OnEvent(t.Context(), e) }), e.Name)
	}
	operations := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u"}
	n := 0
	beyond := func() {
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "E", Severity: pipeline.SeverityDebug, Source: source, Operation: operations[n%len(operations)]})
		n++
	}
	for range operations {
		beyond()
	}
	assert.Zero(t, testing.AllocsPerRun(100, beyond), "beyond the bound, too")
	assert.Zero(t, testing.AllocsPerRun(100, func() { measure(t, l, pipeline.Event{Source: source}) }))
}
