package bench

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/telemetry"
)

// signals are what a program records: only metrics; also spans of executions and attempts; or also events in its own span.
type signals string

const (
	metrics signals = "metrics"
	spans   signals = "spans"
	events  signals = "events"
)

// BenchmarkTelemetry measures what telemetry adds to a pipeline of three strategies. none has no listener; noop has
// telemetry with providers that do nothing; weir has telemetry with OpenTelemetry's SDK. bare has no listener, and the
// benchmark makes the recordings of weir by hand: the same instruments, attributes, spans and events. It reads the
// clock twice, because both recorded durations are those of the one attempt. bare-untimed records a constant instead.
func BenchmarkTelemetry(b *testing.B) {
	for _, s := range []signals{metrics, spans, events} {
		for _, c := range []contender{
			{"none", func(b *testing.B) func() bool { return executing(threeStrategies(nil), ctx) }},
			{"noop", func(b *testing.B) func() bool {
				t, err := telemetry.New(&telemetry.Options{MeterProvider: metricnoop.NewMeterProvider()})
				check(b, err)
				b.Cleanup(func() { check(b, t.Close()) })
				return executing(threeStrategies(t), ctx)
			}},
			{"weir", func(b *testing.B) func() bool {
				sdk := newSDK(b, sdktrace.WithBatcher(discard{}))
				return sdk.weir(b, s)
			}},
			{"bare", func(b *testing.B) func() bool {
				sdk := newSDK(b, sdktrace.WithBatcher(discard{}))
				return sdk.bare(b, s, true)
			}},
			{"bare-untimed", func(b *testing.B) func() bool {
				sdk := newSDK(b, sdktrace.WithBatcher(discard{}))
				return sdk.bare(b, s, false)
			}},
		} {
			if s != metrics && (c.name == "none" || c.name == "noop") {
				continue // they do not depend on signals
			}
			b.Run(fmt.Sprintf("signals=%s/by=%s", s, c.name), func(b *testing.B) { alone(b, c.start(b)) })
		}
	}
}

func threeStrategies(l pipeline.Listener) *pipeline.Pipeline {
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1000}))
	return weir.Must(pipeline.Config{
		Name:       "orders",
		Strategies: []pipeline.Strategy{retry.New(nil), timeout.New(patience, nil), ratelimit.New(permits, nil)},
		Listener:   l,
	}.Build())
}

func executing(p *pipeline.Pipeline, ctx context.Context) func() bool {
	succeed := func(context.Context) error { return nil }
	return func() bool { return p.Execute(ctx, succeed) == nil }
}

// discard is an exporter of spans that has nowhere to send them.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// An otelSDK is OpenTelemetry's SDK as a program sets it up.
type otelSDK struct {
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
	traces  *sdktrace.TracerProvider
	request trace.Span // nil where events do not go to it
}

func newSDK(tb testing.TB, spans sdktrace.TracerProviderOption) *otelSDK {
	reader := sdkmetric.NewManualReader()
	sdk := &otelSDK{
		reader: reader,
		meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		traces: sdktrace.NewTracerProvider(spans),
	}
	tb.Cleanup(func() {
		sdk.endRequest()
		assert.NoError(tb, sdk.traces.Shutdown(ctx))
		assert.NoError(tb, sdk.meters.Shutdown(ctx))
	})
	return sdk
}

// context has a span that records where events are to go there.
func (sdk *otelSDK) context(s signals) context.Context {
	if s != events {
		return ctx
	}
	ctx, span := sdk.traces.Tracer("bench").Start(ctx, "request")
	sdk.request = span
	return ctx
}

func (sdk *otelSDK) endRequest() {
	if sdk.request != nil {
		sdk.request.End()
	}
}

func (sdk *otelSDK) weir(tb testing.TB, s signals) func() bool {
	o := telemetry.Options{MeterProvider: sdk.meters}
	if s == spans {
		o.TracerProvider = sdk.traces
	}
	t, err := telemetry.New(&o)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, t.Close()) })
	return executing(threeStrategies(t), sdk.context(s))
}

const scope = "github.com/weir-go/weir/telemetry"

var (
	ofPipeline = attribute.String("pipeline.name", "orders")
	ofLimiter  = []attribute.KeyValue{ofPipeline, attribute.String("strategy.name", "RateLimiter")}
	ofAttempt  = []attribute.KeyValue{
		attribute.String("event.severity", "Information"), ofPipeline, attribute.String("strategy.name", "Retry"),
		attribute.Int("attempt.number", 0), attribute.Bool("attempt.handled", false),
	}
	ofBegin = []attribute.KeyValue{attribute.String("event.name", "PipelineExecuting"), attribute.String("event.severity", "Debug"), ofPipeline}

	spanOfExecution = []attribute.KeyValue{
		attribute.String("event.name", "PipelineExecuted"), attribute.String("event.severity", "Information"), ofPipeline,
	}
	spanOfAttempt = append([]attribute.KeyValue{attribute.String("event.name", "ExecutionAttempt")}, ofAttempt...)
)

// bare does by hand what telemetry does for a pipeline of three strategies that succeeds.
func (sdk *otelSDK) bare(tb testing.TB, s signals, timed bool) func() bool {
	meter := sdk.meters.Meter(scope)
	executions := durations(tb, meter, "weir.pipeline.duration")
	attempts := durations(tb, meter, "weir.attempt.duration")
	executed, attempted := with[metric.RecordOption](ofPipeline), with[metric.RecordOption](ofAttempt...)
	var begun, granted, held atomic.Int64
	register(tb, meter, &begun, &granted, &held)

	tracer := sdk.traces.Tracer(scope)
	ctx := sdk.context(s)
	execute := executing(threeStrategies(nil), ctx)
	return func() bool {
		var began time.Time
		took := time.Microsecond
		if timed {
			began = time.Now()
		}
		begun.Add(1)
		granted.Add(1)
		held.Add(1)
		if s == events {
			trace.SpanFromContext(ctx).AddEvent("PipelineExecuting", trace.WithAttributes(ofBegin...))
		}
		ok := execute()
		held.Add(-1)
		if timed {
			took = time.Since(began)
		}
		attempts.Record(ctx, took.Seconds(), attempted...)
		executions.Record(ctx, took.Seconds(), executed...)
		switch s {
		case spans:
			ended := began.Add(took)
			from, to := trace.WithTimestamp(began), trace.WithTimestamp(ended)
			_, span := tracer.Start(ctx, "attempt orders", from, trace.WithAttributes(spanOfAttempt...))
			span.End(to)
			_, span = tracer.Start(ctx, "pipeline orders", from, trace.WithAttributes(spanOfExecution...))
			span.End(to)
		case events:
			span, duration := trace.SpanFromContext(ctx), attribute.Float64("duration", took.Seconds())
			span.AddEvent("ExecutionAttempt", trace.WithAttributes(append(slices.Clip(spanOfAttempt), duration)...))
			span.AddEvent("PipelineExecuted", trace.WithAttributes(append(slices.Clip(spanOfExecution), duration)...))
		}
		return ok
	}
}

func durations(tb testing.TB, m metric.Meter, name string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
	require.NoError(tb, err)
	return h
}

func with[O any](attrs ...attribute.KeyValue) []O {
	return []O{any(metric.WithAttributeSet(attribute.NewSet(attrs...))).(O)}
}

// register has the counts read when metrics are collected.
func register(tb testing.TB, m metric.Meter, begun, granted, held *atomic.Int64) {
	events, err := m.Int64ObservableCounter("weir.strategy.events")
	require.NoError(tb, err)
	requests, err := m.Int64ObservableCounter("weir.rate_limiter.requests")
	require.NoError(tb, err)
	active, err := m.Int64ObservableUpDownCounter("weir.rate_limiter.lease.active")
	require.NoError(tb, err)
	ofBegin, ofLimiterHeld := with[metric.ObserveOption](ofBegin...), with[metric.ObserveOption](ofLimiter...)
	of := func(result string) []metric.ObserveOption {
		return with[metric.ObserveOption](append(slices.Clip(ofLimiter), attribute.String("result", result))...)
	}
	acquired, rejected := of("acquired"), of("rejected")
	registration, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(events, begun.Load(), ofBegin...)
		o.ObserveInt64(requests, granted.Load(), acquired...)
		o.ObserveInt64(requests, 0, rejected...)
		o.ObserveInt64(active, held.Load(), ofLimiterHeld...)
		return nil
	}, events, requests, active)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, registration.Unregister()) })
}

// TestTelemetryBare checks that the recordings by hand are those of weir.
func TestTelemetryBare(t *testing.T) {
	for _, s := range []signals{metrics, spans, events} {
		t.Run(string(s), func(t *testing.T) {
			recorded := func(start func(*otelSDK) func() bool) []string {
				exporter := tracetest.NewInMemoryExporter()
				sdk := newSDK(t, sdktrace.WithSyncer(exporter))
				execute := start(sdk)
				for range 3 {
					require.True(t, execute())
				}
				sdk.endRequest()
				var m metricdata.ResourceMetrics
				require.NoError(t, sdk.reader.Collect(ctx, &m))
				return append(seriesIn(t, &m), spansIn(exporter.GetSpans())...)
			}
			bare := recorded(func(sdk *otelSDK) func() bool { return sdk.bare(t, s, true) })
			assert.NotEmpty(t, bare)
			assert.Equal(t, recorded(func(sdk *otelSDK) func() bool { return sdk.weir(t, s) }), bare)
		})
	}
}

// seriesIn lists the series with what they count.
func seriesIn(t *testing.T, m *metricdata.ResourceMetrics) []string {
	var all []string
	for _, scope := range m.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch m.Name {
			case "weir.rate_limiter.queue.duration":
				continue // an answer of the limiter that took 10 µs, because this goroutine was stopped
			case "weir.rate_limiter.queue.max_duration":
				continue // a value that is read, and not recorded
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					all = append(all, fmt.Sprint(scope.Scope.Name, m.Name, m.Unit, p.Attributes.ToSlice(), p.Bounds, p.Count))
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					all = append(all, fmt.Sprint(scope.Scope.Name, m.Name, data.IsMonotonic, p.Attributes.ToSlice(), p.Value))
				}
			default:
				t.Errorf("%s is %T", m.Name, data)
			}
		}
	}
	slices.Sort(all)
	return all
}

// spansIn lists the spans with their events, without what each of them took.
func spansIn(spans tracetest.SpanStubs) []string {
	var all []string
	for _, s := range spans {
		all = append(all, fmt.Sprint(s.InstrumentationScope.Name, s.Name, s.Attributes))
		for _, e := range s.Events {
			for i, a := range e.Attributes {
				if a.Key == "duration" {
					e.Attributes[i] = a.Key.Float64(0)
				}
			}
			all = append(all, fmt.Sprint("event ", e.Name, e.Attributes))
		}
	}
	return all
}
