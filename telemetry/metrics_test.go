package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
)

// started returns a Telemetry and the reader of its metrics.
func started(t *testing.T, o telemetry.Options) (*telemetry.Telemetry, *sdkmetric.ManualReader) {
	t.Helper()
	o, reader := withReader(o)
	return newTelemetry(t, o), reader
}

func TestOnEvent_DurationsInSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		p := ordinary(t, l)
		ctx := pipeline.WithOperation(t.Context(), "list")
		for range 2 {
			require.NoError(t, p.Execute(ctx, func(context.Context) error { time.Sleep(1500 * time.Millisecond); return nil }))
		}
		metrics := collect(t, reader)

		execution := metrics["weir.pipeline.duration"].at(t, map[string]any{"pipeline.name": "orders", "operation.key": "list"})
		assert.EqualValues(t, 2, execution.count)
		assert.InDelta(t, 3, execution.value, 1e-9)
		attempt := metrics["weir.attempt.duration"].at(t, map[string]any{
			"event.severity": "Information", "pipeline.name": "orders", "strategy.name": "Retry", "operation.key": "list",
			"attempt.number": int64(0), "attempt.handled": false,
		})
		assert.EqualValues(t, 2, attempt.count)
		assert.InDelta(t, 3, attempt.value, 1e-9)
	})
}

func TestOnEvent_ErrorType(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	p := weir.Must(pipeline.Config{Name: "orders", Instance: "eu-1", Listener: l}.Build())
	require.Error(t, p.Execute(t.Context(), func(context.Context) error { return context.Canceled }))
	metrics := collect(t, reader)
	metrics["weir.pipeline.duration"].at(t, map[string]any{
		"pipeline.name": "orders", "pipeline.instance": "eu-1", "error.type": "context.Canceled",
	})
	executing := metrics["weir.strategy.events"].at(t, map[string]any{
		"event.name": "PipelineExecuting", "event.severity": "Debug", "pipeline.name": "orders", "pipeline.instance": "eu-1",
	})
	assert.EqualValues(t, 1, executing.value)
}

func TestOnEvent_Series(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	orders, jobs := pipeline.Source{Pipeline: "orders"}, pipeline.Source{Pipeline: "jobs"}
	for _, e := range []pipeline.Event{
		{Name: "A", Severity: pipeline.SeverityWarning, Source: orders},
		{Name: "A", Severity: pipeline.SeverityWarning, Source: orders},
		{Name: "A", Severity: pipeline.SeverityError, Source: orders},
		{Name: "A", Severity: pipeline.SeverityWarning, Source: orders, Operation: "list"},
		{Name: "A", Severity: pipeline.SeverityWarning, Source: orders, Err: errBoom},
		{Name: "A", Severity: pipeline.SeverityWarning, Source: jobs},
		{Name: "B", Severity: pipeline.SeverityWarning, Source: orders},
	} {
		l.Hooks().OnEvent(t.Context(), e)
	}
	counted := collect(t, reader)["weir.strategy.events"]
	assert.Len(t, counted.points, 6)
	twice := counted.at(t, map[string]any{"event.name": "A", "event.severity": "Warning", "pipeline.name": "orders"})
	assert.EqualValues(t, 2, twice.value)
}

func TestOnEvent_HighestAttempt(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	for n := range 1000 {
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityWarning, Attempt: n, Handled: true})
	}
	attempts := collect(t, reader)["weir.attempt.duration"]
	assert.Len(t, attempts.points, 101)
	last := attempts.at(t, map[string]any{"event.severity": "Warning", "attempt.number": int64(100), "attempt.handled": true})
	assert.EqualValues(t, 900, last.count)
}

func TestOptions_SeverityFunc(t *testing.T) {
	for _, tt := range []struct {
		returned pipeline.Severity
		shown    string
	}{
		{pipeline.SeverityCritical, "Critical"},
		{pipeline.SeverityNone, "None"},
		{pipeline.Severity(99), "None"},
	} {
		l, reader := started(t, telemetry.Options{SeverityFunc: func(e pipeline.Event) pipeline.Severity {
			assert.Equal(t, pipeline.SeverityWarning, e.Severity)
			return tt.returned
		}})
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning})
		counted := collect(t, reader)["weir.strategy.events"]
		counted.at(t, map[string]any{"event.name": "OnRetry", "event.severity": tt.shown})
	}
}

func TestOptions_Enrich(t *testing.T) {
	shared := []attribute.KeyValue{attribute.String("zone", "b"), attribute.String("event.name", "other"), attribute.String("region", "eu")}
	l, reader := started(t, telemetry.Options{Enrich: func(_ context.Context, e pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
		assert.Empty(t, attrs)
		if e.Operation == "none" {
			return attrs
		}
		return shared
	}})
	for range 2 {
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning})
	}
	l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning, Operation: "none"})
	l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation})

	metrics := collect(t, reader)
	counted := metrics["weir.strategy.events"]
	enriched := counted.at(t, map[string]any{"event.name": "OnRetry", "event.severity": "Warning", "region": "eu", "zone": "b"})
	assert.EqualValues(t, 2, enriched.value)
	counted.at(t, map[string]any{"event.name": "OnRetry", "event.severity": "Warning", "operation.key": "none"})
	metrics["weir.pipeline.duration"].at(t, map[string]any{"event.name": "other", "region": "eu", "zone": "b"})
	assert.Equal(t, "zone", string(shared[0].Key), "what Enrich returned may be its own")
}

// What takes 0.3 ms and what takes 3 ms are in different buckets, so that a quantile tells them apart.
func TestHistograms_FractionsOfAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		p := ordinary(t, l)
		for _, took := range []time.Duration{300 * time.Microsecond, 3 * time.Millisecond} {
			require.NoError(t, p.Execute(t.Context(), func(context.Context) error { time.Sleep(took); return nil }))
			l.RecordRequest(t.Context(), "GET", "http", "/", 200, "", took)
		}
		var read metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &read))
		histograms := 0
		for _, m := range read.ScopeMetrics[0].Metrics {
			h, ok := m.Data.(metricdata.Histogram[float64])
			if !ok {
				continue
			}
			histograms++
			for _, p := range h.DataPoints {
				var in []float64
				for i, n := range p.BucketCounts {
					if n > 0 {
						in = append(in, p.Bounds[i])
					}
				}
				assert.Equal(t, []float64{.0005, .005}, in, m.Name)
			}
		}
		assert.Equal(t, 3, histograms)
	})
}
