package telemetry_test

import (
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/telemetry"
)

// ordinary returns a pipeline with a retry, a timeout and a rate limiter that grants.
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
