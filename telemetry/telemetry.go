package telemetry

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/pipeline"
)

const scope = "github.com/weir-go/weir/telemetry"

// Telemetry is a [pipeline.Listener]. Make one with [New]; the zero value is not usable. It is
// safe for concurrent use.
type Telemetry struct {
	options     Options
	hooks       pipeline.Hooks
	tracer      trace.Tracer // nil without Options.Spans
	onlyCounts  bool         // an event without an error is only counted, unless a span records
	instruments instruments
	callback    metric.Registration
	series      seriesSet
	limiters    limiters
	reloads     reloads
	stores      observedStores
	requests    requestSet
	collected   atomic.Bool // the counters have been read
}

// New makes a Telemetry. If options is nil, the defaults apply. The error is a [weir.OptionsError], or that of a
// MeterProvider that cannot make the instruments.
func New(options *Options) (*Telemetry, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	t := &Telemetry{
		options:    o,
		onlyCounts: o.Logger == nil && o.Enrich == nil && o.SeverityFunc == nil && !o.Spans,
	}
	t.hooks = pipeline.Hooks{
		OnEvent: t.onEvent, Enabled: t.enabled, OnMeasurement: t.onMeasurement, InForce: t.inForce, Forget: t.series.forget,
	}
	t.requests.init(o.MaxSeries)
	if o.Spans {
		t.tracer = o.TracerProvider.Tracer(scope)
	}
	meter := o.MeterProvider.Meter(scope)
	if err := t.instruments.make(meter, o.LeaseDuration); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t.series.init(o.MaxSeries, t.instruments.leases)
	callback, err := meter.RegisterCallback(t.observe, t.instruments.observables...)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t.callback = callback
	return t, nil
}

// Close ends the export of counters and gauges. Call it when no execution reports to t any more: later events are still
// recorded by the histograms, the spans and the log. Further calls do nothing.
func (t *Telemetry) Close() error { return t.callback.Unregister() }

// Hooks implements [pipeline.Listener]. The functions do this:
//
//   - OnEvent counts the event, writes the log line, and adds the span event. If Enrich, SeverityFunc, ResultFormatter, a
//     method of an error or the handler of the Logger panics, the panic reaches the caller of the execution. The event is
//     counted nevertheless.
//   - Enabled reports whether an event would be exported: the metrics have a reader, the span of the context records, or the
//     Logger would write a line.
//   - OnMeasurement counts the answers of rate limiters and the leases that are held.
//   - InForce exports the state of the circuits of a pipeline, and of the pipelines that it contains, from now on, and begins
//     the counters of their rate limiters at 0.
//   - Forget drops all series of the pipeline and instance. If the source has a Strategy, it drops the series of that strategy
//     only. Later events of that pipeline count from 0. The counts of OnPipelineRemoved and DisposeFailed stay, because a
//     reader that comes later would never see them. The SDK keeps what a histogram has recorded and cannot remove it: a reader
//     of cumulative temporality, such as Prometheus, continues to see the unchanged durations of a removed pipeline.
func (t *Telemetry) Hooks() pipeline.Hooks { return t.hooks }

// enabled reports whether an event in ctx would be exported.
func (t *Telemetry) enabled(ctx context.Context) bool {
	return t.measuring(ctx) || t.tracer != nil || t.logging(ctx) || trace.SpanFromContext(ctx).IsRecording()
}

// measuring reports whether metrics are read. A histogram of OpenTelemetry reports whether it is read. For a counter,
// that is not known before the first collection. So if a program drops all histograms but keeps the counters, they
// count from the first collection on.
func (t *Telemetry) measuring(ctx context.Context) bool {
	return len(t.instruments.histograms) != 0 && (t.collected.Load() || t.instruments.recording(ctx))
}

// logging reports whether the Logger would write a line of some level.
func (t *Telemetry) logging(ctx context.Context) bool {
	return t.options.Logger != nil && t.options.Logger.Enabled(ctx, levelCritical)
}

// An occurrence is an event with what metrics, spans and log lines add to it.
type occurrence struct {
	pipeline.Event                      // its Severity is the one that SeverityFunc returned
	ownSeverity    pipeline.Severity    // the severity that the event had
	errorType      string               // "" for success
	extra          []attribute.KeyValue // the attributes of Enrich
}

func (t *Telemetry) onEvent(ctx context.Context, e pipeline.Event) {
	span := trace.SpanFromContext(ctx)
	if e.Err == nil && t.onlyCounts && !span.IsRecording() { // nearly every event
		if len(t.instruments.histograms) != 0 { // enabled has found that they are read
			t.count(ctx, &e, "", nil)
		}
		return
	}
	t.process(ctx, &occurrence{Event: e, ownSeverity: e.Severity}, span)
}

// process is onEvent for an event that is not only counted.
func (t *Telemetry) process(ctx context.Context, o *occurrence, span trace.Span) {
	t.complete(ctx, o)
	if t.options.Logger != nil {
		t.log(ctx, o)
	}
	if span.IsRecording() {
		t.addEvent(span, o)
	}
	if t.tracer != nil {
		t.addSpan(ctx, o)
	}
}

// complete fills in the fields that the event does not have, and counts it, even if a function of the program panics.
func (t *Telemetry) complete(ctx context.Context, o *occurrence) {
	if t.measuring(ctx) {
		defer func() { t.count(ctx, &o.Event, o.errorType, o.extra) }()
	}
	if o.Err != nil {
		o.errorType = errorType(o.Err)
	}
	if t.options.Enrich != nil {
		o.extra = t.options.Enrich(ctx, o.Event, nil)
	}
	if t.options.SeverityFunc != nil {
		if o.Severity = t.options.SeverityFunc(o.Event); o.Severity > pipeline.SeverityCritical {
			o.Severity = pipeline.SeverityNone
		}
	}
}
