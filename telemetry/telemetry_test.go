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

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
)

func TestNew_WrongOptions(t *testing.T) {
	_, err := telemetry.New(&telemetry.Options{MaxSeries: -2, SpanSeverity: 9})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.EqualError(t, err, "telemetry: SpanSeverity must be one of None to Critical, got Severity(9); MaxSeries must be at least 1, or 0 for 1000, got -2")
}

type failingProvider struct{ metricnoop.MeterProvider }

func (failingProvider) Meter(string, ...metric.MeterOption) metric.Meter { return failingMeter{} }

type failingMeter struct{ metricnoop.Meter }

func (failingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errBoom
}

func TestNew_ProviderFails(t *testing.T) {
	_, err := telemetry.New(&telemetry.Options{MeterProvider: failingProvider{}})
	require.ErrorIs(t, err, errBoom)
	require.NotErrorIs(t, err, weir.ErrInvalidOptions)
	assert.True(t, strings.HasPrefix(err.Error(), "telemetry: "), err)
}

func TestEnabled(t *testing.T) {
	assert.False(t, unread(t).Hooks().Enabled(t.Context()))

	heard, _ := withReader(telemetry.Options{})
	assert.True(t, newTelemetry(t, heard).Hooks().Enabled(t.Context()), "metrics that are read")

	notRead := telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider()}
	assert.False(t, newTelemetry(t, notRead).Hooks().Enabled(t.Context()), "metrics without a reader")

	notRead.Logger = slog.New(slog.DiscardHandler)
	assert.False(t, newTelemetry(t, notRead).Hooks().Enabled(t.Context()), "a log that takes nothing")

	notRead.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError + 4}))
	assert.True(t, newTelemetry(t, notRead).Hooks().Enabled(t.Context()), "a log that takes what is critical")

	provider, _ := recorder()
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	defer span.End()
	assert.True(t, unread(t).Hooks().Enabled(ctx), "a span that records")
}

// Views can drop every histogram. The counters are exported nevertheless.
func TestEnabled_CountersWithoutHistograms(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	noHistograms := sdkmetric.NewView(sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})
	l := newTelemetry(t, telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(noHistograms))})
	p := ordinary(t, l)
	require.NoError(t, p.Execute(t.Context(), succeed))
	assert.Empty(t, collect(t, reader), "not read before")
	require.NoError(t, p.Execute(t.Context(), succeed))
	assert.NotEmpty(t, collect(t, reader)["weir.strategy.events"].points)
}

var globalIsSet atomic.Bool

// The global providers can be set after New.
func TestNew_GlobalProvider(t *testing.T) {
	if globalIsSet.Swap(true) {
		t.Skip("instruments follow the global provider only once in a process")
	}
	l := newTelemetry(t, telemetry.Options{})
	p := ordinary(t, l)
	assert.False(t, l.Hooks().Enabled(t.Context()))

	reader := sdkmetric.NewManualReader()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	defer otel.SetMeterProvider(metricnoop.NewMeterProvider())
	assert.True(t, l.Hooks().Enabled(t.Context()))
	require.NoError(t, p.Execute(t.Context(), succeed))
	metrics := collect(t, reader)
	assert.Contains(t, metrics, "weir.strategy.events")
	assert.Contains(t, metrics, "weir.pipeline.duration")
}

func TestClose(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning})
	assert.Contains(t, collect(t, reader), "weir.strategy.events")
	require.NoError(t, l.Close())
	assert.Empty(t, collect(t, reader))
	require.NoError(t, l.Close())
	l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning})
}

// The program chooses the SDK and its version, so this package does not import it.
func TestImports_NoSDK(t *testing.T) {
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
