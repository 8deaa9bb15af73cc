package telemetry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
)

// No event is lost when many goroutines make the series at the same time.
func TestOnEvent_ConcurrentSafe(t *testing.T) {
	const goroutines, executions, pipelines = 8, 200, 5
	l, reader := started(t, telemetry.Options{MaxSeries: 12})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for n := range executions {
				source := pipeline.Source{Pipeline: fmt.Sprint("p", n%pipelines), Strategy: "Retry"}
				ctx := t.Context()
				l.Hooks().OnEvent(ctx, pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning, Source: source, Operation: fmt.Sprint("op", n%20)})
				l.Hooks().OnEvent(ctx, pipeline.Event{Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation, Source: source})
				measure(t, l, pipeline.Event{Source: source})
			}
		})
	}
	wg.Wait()
	metrics := collect(t, reader)
	var events, requests, active float64
	for _, p := range metrics["weir.strategy.events"].points {
		events += p.value
	}
	for _, p := range metrics["weir.rate_limiter.requests"].points {
		requests += p.value
	}
	for _, p := range metrics["weir.rate_limiter.lease.active"].points {
		active += p.value
	}
	var count uint64
	for _, p := range metrics["weir.pipeline.duration"].points {
		count += p.count
	}
	assert.EqualValues(t, goroutines*executions, events)
	assert.EqualValues(t, goroutines*executions, requests)
	assert.EqualValues(t, goroutines*executions, count)
	assert.Zero(t, active)
	assert.LessOrEqual(t, len(metrics["weir.strategy.events"].points), 12+pipelines)
}

func TestTelemetry_ConcurrentSafe(t *testing.T) {
	shared := []attribute.KeyValue{attribute.String("zone", "b"), attribute.String("region", "eu")}
	l, reader := started(t, telemetry.Options{
		MaxSeries: 3, LeaseDuration: true,
		Enrich: func(context.Context, pipeline.Event, []attribute.KeyValue) []attribute.KeyValue { return shared },
	})
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	p := ordinary(t, l)
	var wg sync.WaitGroup
	again := func(f func(n int)) {
		wg.Go(func() {
			for n := range 100 {
				f(n)
			}
		})
	}
	for range 4 {
		again(func(n int) {
			ctx := pipeline.WithOperation(t.Context(), fmt.Sprint(n%5))
			assert.NoError(t, p.Execute(ctx, succeed))
		})
	}
	again(func(int) { l.Hooks().Forget(pipeline.Source{Pipeline: "orders"}) })
	again(func(n int) { l.ObserveLimiter(fmt.Sprint(n%3), permits)() })
	again(func(int) { l.ConfigReloaded(time.Now(), nil) })
	again(func(int) {
		var read metricdata.ResourceMetrics
		assert.NoError(t, reader.Collect(t.Context(), &read))
	})
	wg.Wait()
	require.NoError(t, l.Close())
	require.NoError(t, permits.Close())
}
