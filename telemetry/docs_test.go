package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/telemetry"
)

// The tables of docs/telemetry.md list exactly the events and instruments that are emitted.
func TestDocumentation_ListsWhatIsEmitted(t *testing.T) {
	page, err := os.ReadFile("../docs/telemetry.md")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		seen := emitEverything(t)
		assert.Equal(t, documentedEvents(t, string(page)), seen.events)
		assert.Equal(t, documentedInstruments(t, string(page)), seen.instruments)
	})
}

// An eventRow is a row of the table of events. The severities are sorted by name.
type eventRow struct {
	severities          []string
	instrument, message string
	onSpan              bool
}

type instrumentRow struct {
	kind, unit string
	attributes []string
}

type emitted struct {
	events      map[string]eventRow
	instruments map[string]instrumentRow
}

func documentedEvents(t *testing.T, page string) map[string]eventRow {
	t.Helper()
	rows := map[string]eventRow{}
	for _, cells := range tableBelow(t, page, "## Events") {
		severities := strings.Split(cells[1], ", ")
		slices.Sort(severities)
		rows[code(cells[0])] = eventRow{severities: severities, instrument: code(cells[3]), message: cells[4], onSpan: true}
	}
	return rows
}

func documentedInstruments(t *testing.T, page string) map[string]instrumentRow {
	t.Helper()
	rows := map[string]instrumentRow{}
	for _, cells := range tableBelow(t, page, "## Instruments") {
		row := instrumentRow{kind: cells[1]}
		if cells[2] != "none" {
			row.unit = code(cells[2])
		}
		if cells[3] != "none" {
			for name := range strings.SplitSeq(cells[3], ", ") {
				row.attributes = append(row.attributes, code(name))
			}
		}
		slices.Sort(row.attributes)
		rows[code(cells[0])] = row
	}
	return rows
}

// tableBelow returns the cells of the first table after the heading.
func tableBelow(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	_, after, ok := strings.Cut(page, heading+"\n")
	require.True(t, ok, heading)
	for line := range strings.Lines(after) {
		if !strings.HasPrefix(line, "|") {
			if rows != nil {
				break
			}
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	require.Greater(t, len(rows), 2, heading)
	return rows[2:] // without the headings and the line below them
}

func code(cell string) string { return strings.Trim(cell, "`") }

// emitEverything makes pipelines emit every event and every metric, and returns them. It runs in a bubble of synctest.
func emitEverything(t *testing.T) emitted {
	t.Helper()
	var log bytes.Buffer
	o, reader := withReader(telemetry.Options{
		Logger:        slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		LeaseDuration: true,
	})
	listener := newTelemetry(t, o)
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{EventCountLimit: -1, AttributeCountLimit: -1, AttributeValueLengthLimit: -1, AttributePerEventCountLimit: -1})).Tracer("test")
	ctx, span := tracer.Start(pipeline.WithOperation(t.Context(), "list"), "request")

	driveStrategies(ctx, t, listener)
	driveShadow(ctx, t, listener)
	driveBreaker(ctx, t, listener)
	defer driveStore(ctx, t, listener)()
	driveOthers(ctx, t, listener)
	defer driveRegistry(ctx, t, listener)()
	driveReloads(listener)
	driveRequests(t, listener)
	span.End()

	seen := emitted{events: map[string]eventRow{}, instruments: map[string]instrumentRow{}}
	seen.readLog(t, &log)
	for _, e := range spans.Ended()[0].Events() {
		row := seen.events[e.Name]
		row.onSpan = true
		seen.events[e.Name] = row
	}
	seen.readMetrics(collect(t, reader))
	return seen
}

func (seen *emitted) readLog(t *testing.T, log *bytes.Buffer) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var l map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		row := seen.events[l["event.name"].(string)]
		row.severities = union(row.severities, l["event.severity"].(string))
		row.message = l["msg"].(string)
		seen.events[l["event.name"].(string)] = row
	}
}

func (seen *emitted) readMetrics(metrics map[string]instrument) {
	counted := func(name, by string) {
		row := seen.events[name]
		row.instrument = by
		seen.events[name] = row
	}
	for name, i := range metrics {
		row := instrumentRow{kind: i.kind, unit: i.unit}
		for _, p := range i.points {
			for key := range p.attributes {
				row.attributes = union(row.attributes, key)
			}
			if event, ok := p.attributes["event.name"]; ok {
				counted(event.(string), name)
			}
		}
		seen.instruments[name] = row
	}
	// These count one event each, without the attribute event.name.
	if metrics["weir.pipeline.duration"].points != nil {
		counted("PipelineExecuted", "weir.pipeline.duration")
	}
	if metrics["weir.attempt.duration"].points != nil {
		counted("ExecutionAttempt", "weir.attempt.duration")
	}
}

// union adds name to the sorted names.
func union(names []string, name string) []string {
	i, found := slices.BinarySearch(names, name)
	if found {
		return names
	}
	return slices.Insert(names, i, name)
}

var errBoom = errors.New("boom")

func succeed(context.Context) error { return nil }
func fail(context.Context) error    { return errBoom }

// driveStrategies has a success, a failure of all attempts, a timeout, a rejection, and a request that waits in the queue.
func driveStrategies(ctx context.Context, t *testing.T, l pipeline.Listener) {
	t.Helper()
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
	defer func() { require.NoError(t, permits.Close()) }()
	p := weir.Must(pipeline.Config{Name: "orders", Instance: "eu-1", Listener: l, Strategies: []pipeline.Strategy{
		retry.New(&retry.Options{MaxRetries: 1, Delay: time.Second}),
		timeout.New(time.Minute, nil),
		ratelimit.New(permits, nil),
	}}.Build())

	require.NoError(t, p.Execute(ctx, succeed))
	require.ErrorIs(t, p.Execute(ctx, fail), errBoom)
	err := p.Execute(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	require.ErrorIs(t, err, pipeline.ErrRejected)

	held, err := permits.TryAcquire(ctx, 1)
	require.NoError(t, err)
	time.AfterFunc(time.Second, held.Release)
	require.NoError(t, p.Execute(ctx, succeed)) // after a second in the queue

	full, err := permits.TryAcquire(ctx, 1)
	require.NoError(t, err)
	waiting, cancel := context.WithCancel(ctx)
	go func() { _, _ = permits.Acquire(waiting, 1) }()
	synctest.Wait()
	require.ErrorIs(t, p.Execute(ctx, succeed), pipeline.ErrRejected)
	cancel()
	full.Release()
}

// driveShadow has a rejection in shadow mode, and a limiter that fails.
func driveShadow(ctx context.Context, t *testing.T, l pipeline.Listener) {
	t.Helper()
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	shadow := ratelimit.New(permits, &ratelimit.Options{Shadow: true})
	p := weir.Must(pipeline.Config{Name: "shadow", Listener: l, Strategies: []pipeline.Strategy{shadow}}.Build())
	held, err := permits.TryAcquire(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, p.Execute(ctx, succeed))
	held.Release()
	require.NoError(t, permits.Close())
	require.NoError(t, p.Execute(ctx, succeed))
}

// driveRegistry has a registry that puts a version in force, and fails to build and to dispose of another. Its limiter is
// observed until stop is called.
func driveRegistry(ctx context.Context, t *testing.T, l *telemetry.Telemetry) (stop func()) {
	t.Helper()
	r := registry.New(&registry.Options{
		Listener:       l,
		ObserveLimiter: l.ObserveLimiter,
	})
	fails := false
	_, err := r.GetOrDefine("stock", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("stock", limiter.ConcurrencyOptions{PermitLimit: 1}), nil))
		if !fails {
			return nil
		}
		b.OnDispose(func() error { return errBoom })
		return errBoom
	})
	require.NoError(t, err)
	_, err = r.GetInstance("stock", "eu-1")
	require.NoError(t, err)
	sale := registry.Override{Limiter: "stock", Options: limiter.ConcurrencyOptions{PermitLimit: 2}, Until: time.Now().Add(time.Hour), By: "ann", Reason: "a sale"}
	require.NoError(t, r.Override(ctx, sale))
	require.NoError(t, r.Reload(ctx))
	require.NoError(t, r.EndOverride(ctx, "stock", "ann"))
	fails = true
	require.ErrorIs(t, r.Reload(ctx), errBoom)
	gone, err := r.GetOrDefine("gone", func(*registry.Builder) error { return nil })
	require.NoError(t, err)
	// The series of a removed pipeline are forgotten with its last execution.
	running, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(t, gone.Execute(ctx, func(context.Context) error {
			close(running)
			<-end
			return nil
		}))
	}()
	<-running
	require.NoError(t, r.Apply(ctx, registry.Change{Remove: []string{"gone"}}))
	return func() {
		close(end)
		<-ended
		require.NoError(t, r.Close(ctx))
	}
}

func driveReloads(t *telemetry.Telemetry) {
	t.ConfigReloaded(time.Now(), nil)
	t.ConfigReloaded(time.Now(), errBoom)
}
