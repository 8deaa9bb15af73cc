package telemetry_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/telemetry"
)

// ordinary is the pipeline that costs are stated for: a retry, a timeout and a
// rate limiter that grants.
func ordinary(tb testing.TB, l pipeline.Listener) *pipeline.Pipeline {
	tb.Helper()
	permits := limiter.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1000}))
	tb.Cleanup(func() { _ = permits.Close() })
	return pipeline.Must(pipeline.Config{
		Name:       "orders",
		Strategies: []pipeline.Strategy{retry.New(nil), timeout.New(0, nil), ratelimit.New(permits, nil)},
		Listener:   l,
	}.Build())
}

func newTelemetry(tb testing.TB, o telemetry.Options) *telemetry.Telemetry {
	tb.Helper()
	t, err := telemetry.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = t.Close() })
	return t
}

// unheard has listeners whom nobody listens to in turn.
func unheard(tb testing.TB) *telemetry.Telemetry {
	return newTelemetry(tb, telemetry.Options{
		MeterProvider:  metricnoop.NewMeterProvider(),
		TracerProvider: tracenoop.NewTracerProvider(),
	})
}

func withReader(o telemetry.Options) (telemetry.Options, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return o, reader
}

// What telemetry costs is the difference to the first.
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
		{"listener=noop", unheard(b)},
		{"listener=sdk", heard(telemetry.Options{})},
		{"listener=sdk/lease_duration", heard(telemetry.Options{LeaseDuration: true})},
		{"listener=sdk/enriched", heard(telemetry.Options{Enrich: enrich})},
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

// empty does nothing: what is left is the pipeline's own part in telemetry, which
// reads the clock seven times.
type empty struct{}

func (empty) OnEvent(context.Context, pipeline.Event)       {}
func (empty) OnMeasurement(context.Context, pipeline.Event) {}

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
