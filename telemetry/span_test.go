package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/telemetry"
)

func recorder() (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), spans
}

func retried(l pipeline.Listener) *pipeline.Pipeline {
	return weir.Must(pipeline.Config{Name: "orders", Listener: l, Strategies: []pipeline.Strategy{
		retry.New(&retry.Options{MaxRetries: 1, Delay: time.Second}),
	}}.Build())
}

func TestOnEvent_SpanEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := recorder()
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		p := retried(newTelemetry(t, telemetry.Options{})) // no metrics, no log: the span is enough
		require.ErrorIs(t, p.Execute(ctx, func(context.Context) error { time.Sleep(time.Second); return errBoom }), errBoom)
		span.End()

		require.Len(t, spans.Ended(), 1, "no spans of our own")
		var names []string
		for _, e := range spans.Ended()[0].Events() {
			names = append(names, e.Name)
		}
		assert.Equal(t, []string{"PipelineExecuting", "ExecutionAttempt", "OnRetry", "ExecutionAttempt", "PipelineExecuted"}, names)
		assert.Equal(t, []attribute.KeyValue{
			attribute.String("event.name", "ExecutionAttempt"),
			attribute.String("event.severity", "Error"),
			attribute.String("pipeline.name", "orders"),
			attribute.String("strategy.name", "Retry"),
			attribute.String("error.type", "*errors.errorString"),
			attribute.Int("attempt.number", 1),
			attribute.Bool("attempt.handled", true),
			attribute.String("result", "boom"),
			attribute.Float64("duration", 1),
		}, spans.Ended()[0].Events()[3].Attributes)
	})
}

func TestOptions_SpanSeverity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := recorder()
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		p := retried(newTelemetry(t, telemetry.Options{SpanSeverity: pipeline.SeverityError}))
		require.ErrorIs(t, p.Execute(ctx, fail), errBoom)
		span.End()
		require.Len(t, spans.Ended()[0].Events(), 1)
		assert.Equal(t, "ExecutionAttempt", spans.Ended()[0].Events()[0].Name)
	})
}

func TestOptions_Spans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := recorder()
		ctx, request := provider.Tracer("test").Start(t.Context(), "request")
		l := newTelemetry(t, telemetry.Options{TracerProvider: provider})
		began, calls := time.Now(), 0
		require.NoError(t, retried(l).Execute(ctx, func(context.Context) error {
			time.Sleep(time.Second)
			if calls++; calls == 1 {
				return errBoom
			}
			return nil
		}))
		unnamed := weir.Must(pipeline.Config{Listener: l}.Build())
		require.NoError(t, unnamed.Execute(ctx, succeed))

		type row struct {
			name       string
			start, end time.Duration
			status     codes.Code
		}
		var got []row
		for _, s := range spans.Ended() {
			got = append(got, row{s.Name(), s.StartTime().Sub(began), s.EndTime().Sub(began), s.Status().Code})
			assert.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID())
		}
		assert.Equal(t, []row{
			{"attempt orders", 0, time.Second, codes.Error},
			{"attempt orders", 2 * time.Second, 3 * time.Second, codes.Unset},
			{"pipeline orders", 0, 3 * time.Second, codes.Unset},
			{"pipeline", 3 * time.Second, 3 * time.Second, codes.Unset},
		}, got)
		request.End()
	})
}

// The options that the spans of one series share have no attributes of a single event.
func TestOptions_SpansHaveTheirOwnAttributes(t *testing.T) {
	for _, max := range []int{1, 1000} { // also where there is no room for series
		provider, spans := recorder()
		l, _ := started(t, telemetry.Options{TracerProvider: provider, MaxSeries: max, SeverityFunc: func(e pipeline.Event) pipeline.Severity {
			if e.Result != nil {
				return pipeline.SeverityCritical
			}
			return e.Severity
		}})
		type row struct {
			name       string
			attributes []attribute.KeyValue
		}
		var want []row
		for range 2 {
			for _, attempt := range []int{0, 1, 99, 100, 101} {
				l.Hooks().OnEvent(t.Context(), pipeline.Event{
					Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityWarning, Handled: attempt == 1, Attempt: attempt,
					Source: pipeline.Source{Pipeline: "orders", Strategy: "Retry"}, Operation: "list", Err: errBoom,
				})
				want = append(want, row{"attempt orders", []attribute.KeyValue{
					attribute.String("event.name", "ExecutionAttempt"), attribute.String("event.severity", "Warning"),
					attribute.String("pipeline.name", "orders"), attribute.String("strategy.name", "Retry"),
					attribute.String("operation.key", "list"), attribute.String("error.type", "*errors.errorString"),
					attribute.Int("attempt.number", attempt), attribute.Bool("attempt.handled", attempt == 1),
				}})
			}
			for _, name := range []string{"orders", "jobs"} {
				for _, result := range []any{nil, 1} {
					l.Hooks().OnEvent(t.Context(), pipeline.Event{
						Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation, Source: pipeline.Source{Pipeline: name}, Result: result,
					})
					severity := map[bool]string{true: "Information", false: "Critical"}[result == nil]
					want = append(want, row{"pipeline " + name, []attribute.KeyValue{
						attribute.String("event.name", "PipelineExecuted"), attribute.String("event.severity", severity), attribute.String("pipeline.name", name),
					}})
				}
			}
		}
		var got []row
		for _, s := range spans.Ended() {
			got = append(got, row{s.Name(), s.Attributes()})
		}
		assert.Equal(t, want, got)
	}
}
