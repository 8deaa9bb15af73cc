package telemetry_test

import (
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
)

func TestOptionsAreValidated(t *testing.T) {
	_, err := telemetry.New(&telemetry.Options{MaxSeries: -1})
	require.ErrorIs(t, err, telemetry.ErrInvalidOptions)
	assert.EqualError(t, err, "telemetry: invalid options: MaxSeries is -1, must be at least 1, or 0 for 1000")

	_, err = telemetry.New(&telemetry.Options{MaxSeries: -2, SpanSeverity: 9})
	require.ErrorIs(t, err, telemetry.ErrInvalidOptions)
	assert.EqualError(t, err, "telemetry: invalid options: SpanSeverity is Severity(9), must be one of None to Critical; MaxSeries is -2, must be at least 1, or 0 for 1000")
}

type failingProvider struct{ metricnoop.MeterProvider }

func (failingProvider) Meter(string, ...metric.MeterOption) metric.Meter { return failingMeter{} }

type failingMeter struct{ metricnoop.Meter }

func (failingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errBoom
}

func TestAProviderThatFails(t *testing.T) {
	_, err := telemetry.New(&telemetry.Options{MeterProvider: failingProvider{}})
	require.ErrorIs(t, err, errBoom)
	require.NotErrorIs(t, err, telemetry.ErrInvalidOptions)
	assert.True(t, strings.HasPrefix(err.Error(), "telemetry: "), err)
}

func TestEnabled(t *testing.T) {
	assert.False(t, unheard(t).Enabled(t.Context()))

	heard, _ := withReader(telemetry.Options{})
	assert.True(t, newTelemetry(t, heard).Enabled(t.Context()), "metrics that are read")

	unread := telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider()}
	assert.False(t, newTelemetry(t, unread).Enabled(t.Context()), "metrics without a reader")

	unread.Logger = slog.New(slog.DiscardHandler)
	assert.False(t, newTelemetry(t, unread).Enabled(t.Context()), "a log that takes nothing")

	unread.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError + 4}))
	assert.True(t, newTelemetry(t, unread).Enabled(t.Context()), "a log that takes what is critical")

	provider, _ := recorder()
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	defer span.End()
	assert.True(t, unheard(t).Enabled(ctx), "a span that records")
}

// Views may drop every histogram; the counters go on all the same.
func TestCountersWithoutHistograms(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	noHistograms := sdkmetric.NewView(sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})
	l := newTelemetry(t, telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(noHistograms))})
	p := ordinary(t, l)
	require.NoError(t, p.Execute(t.Context(), succeed))
	assert.Empty(t, collect(t, reader), "nobody has asked until now")
	require.NoError(t, p.Execute(t.Context(), succeed))
	assert.NotEmpty(t, collect(t, reader)["weir.strategy.events"].points)
}

var globalIsSet atomic.Bool

// The global providers may be set after a Telemetry was made.
func TestGlobalProvider(t *testing.T) {
	if globalIsSet.Swap(true) {
		t.Skip("what was made before the global provider was set follows it once in a process")
	}
	l := newTelemetry(t, telemetry.Options{})
	p := ordinary(t, l)
	assert.False(t, l.Enabled(t.Context()))

	reader := sdkmetric.NewManualReader()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	defer otel.SetMeterProvider(metricnoop.NewMeterProvider())
	assert.True(t, l.Enabled(t.Context()))
	require.NoError(t, p.Execute(t.Context(), succeed))
	metrics := collect(t, reader)
	assert.Contains(t, metrics, "weir.strategy.events")
	assert.Contains(t, metrics, "weir.pipeline.duration")
}

func TestClose(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	l.OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning})
	assert.Contains(t, collect(t, reader), "weir.strategy.events")
	require.NoError(t, l.Close())
	assert.Empty(t, collect(t, reader))
	require.NoError(t, l.Close())
	l.OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning})
}

// Whoever imports weir is to choose an SDK, and its version, for himself.
func TestTheSDKIsForTests(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			assert.NotContains(t, spec.Path.Value, "/otel/sdk", name)
		}
	}
}
