package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/telemetry"
)

// ordinary returns the pipeline whose costs the documentation states: a retry, a timeout and a rate limiter that grants.
func ordinary(tb testing.TB, l pipeline.Listener) *pipeline.Pipeline {
	tb.Helper()
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1000}))
	tb.Cleanup(func() { _ = permits.Close() })
	return weir.Must(pipeline.Config{
		Name:       "orders",
		Strategies: []pipeline.Strategy{retry.New(nil), timeout.New(0, nil), ratelimit.New(permits, nil)},
		Listener:   l,
	}.Build())
}

func newTelemetry(tb testing.TB, o telemetry.Options) *telemetry.Telemetry {
	tb.Helper()
	t, err := telemetry.New(&o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = t.Close() })
	return t
}

// unread returns a Telemetry whose metrics, spans and log lines are not read.
func unread(tb testing.TB) *telemetry.Telemetry {
	return newTelemetry(tb, telemetry.Options{
		MeterProvider: metricnoop.NewMeterProvider(),
	})
}

func withReader(o telemetry.Options) (telemetry.Options, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return o, reader
}

// The cost of telemetry is the difference to the first benchmark.
func BenchmarkExecute(b *testing.B) {
	heard := func(o telemetry.Options) pipeline.Listener {
		o, _ = withReader(o)
		return newTelemetry(b, o)
	}
	enrich := func(_ context.Context, _ pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
		return append(attrs, attribute.String("region", "eu"))
	}
	listeners := []struct {
		name string
		l    pipeline.Listener
	}{
		{"listener=none", nil},
		{"listener=noop", unread(b)},
		{"listener=sdk", heard(telemetry.Options{})},
		{"listener=sdk+spans", heard(telemetry.Options{TracerProvider: sdktrace.NewTracerProvider()})},
		{"listener=sdk+lease_duration", heard(telemetry.Options{LeaseDuration: true})},
		{"listener=sdk+enriched", heard(telemetry.Options{Enrich: enrich})},
		{"listener=empty", empty{}},
	}
	for _, bb := range listeners {
		b.Run(bb.name, func(b *testing.B) {
			p := ordinary(b, bb.l)
			ctx, fn := b.Context(), func(context.Context) error { return nil }
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Execute(ctx, fn); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The cost of the SDK alone for one execution: two durations, recorded with attributes that are made once, and two spans.
func BenchmarkBare(b *testing.B) {
	o, _ := withReader(telemetry.Options{})
	meter := o.MeterProvider.Meter("bare")
	executions, attempts := histogram(b, meter, "weir.pipeline.duration"), histogram(b, meter, "weir.attempt.duration")
	ofExecution := []attribute.KeyValue{attribute.String("pipeline.name", "orders")}
	ofAttempt := []attribute.KeyValue{
		attribute.String("event.severity", "Information"), attribute.String("pipeline.name", "orders"),
		attribute.String("strategy.name", "Retry"), attribute.Int("attempt.number", 0), attribute.Bool("attempt.handled", false),
	}
	execution := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(ofExecution...))}
	attempt := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(ofAttempt...))}
	record := func(ctx context.Context) {
		attempts.Record(ctx, 0.001, attempt...)
		executions.Record(ctx, 0.001, execution...)
	}
	b.Run("metrics", func(b *testing.B) {
		b.ReportAllocs()
		ctx := b.Context()
		for b.Loop() {
			record(ctx)
		}
	})
	tracer := sdktrace.NewTracerProvider().Tracer("bare")
	startAttempt, startExecution := spanOptions("ExecutionAttempt", ofAttempt), spanOptions("PipelineExecuted", ofExecution)
	b.Run("metrics+spans", func(b *testing.B) {
		b.ReportAllocs()
		ctx := b.Context()
		for b.Loop() {
			record(ctx)
			ended := time.Now()
			_, span := tracer.Start(ctx, "attempt orders", append(startAttempt, trace.WithTimestamp(ended))...)
			span.End(trace.WithTimestamp(ended))
			_, span = tracer.Start(ctx, "pipeline orders", append(startExecution, trace.WithTimestamp(ended))...)
			span.End(trace.WithTimestamp(ended))
		}
	})
}

// The cost of one reading of the clock. Each duration needs two.
func BenchmarkClock(b *testing.B) {
	began := time.Now()
	for b.Loop() {
		_ = time.Since(began)
	}
}

func histogram(b *testing.B, m metric.Meter, name string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
	require.NoError(b, err)
	return h
}

func spanOptions(event string, attrs []attribute.KeyValue) []trace.SpanStartOption {
	attrs = append([]attribute.KeyValue{attribute.String("event.name", event), attribute.String("event.severity", "Information")}, attrs...)
	return []trace.SpanStartOption{trace.WithAttributes(attrs...)}
}

// empty does nothing. What remains is the cost of the pipeline itself, which reads the clock seven times.
type empty struct{}

func (empty) Hooks() pipeline.Hooks {
	ended := func(context.Context, pipeline.Event) {}
	return pipeline.Hooks{
		OnEvent:       func(context.Context, pipeline.Event) {},
		OnMeasurement: func(context.Context, pipeline.Event) func(context.Context, pipeline.Event) { return ended },
	}
}

func BenchmarkExecuteParallel(b *testing.B) {
	o, _ := withReader(telemetry.Options{})
	p := ordinary(b, newTelemetry(b, o))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx, fn := b.Context(), func(context.Context) error { return nil }
		for pb.Next() {
			_ = p.Execute(ctx, fn)
		}
	})
}
