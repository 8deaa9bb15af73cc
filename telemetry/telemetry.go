package telemetry

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/pipeline"
)

const scope = "github.com/weir-go/weir/telemetry"

// Telemetry is a [pipeline.Listener] and a [pipeline.Measurer]. Make one with
// [New]; the zero Telemetry is of no use. It is safe for concurrent use.
type Telemetry struct {
	instant
	options     Options
	tracer      trace.Tracer // nil without Options.Spans
	onlyCounts  bool         // an event without an error, as long as no span records
	instruments instruments
	callback    metric.Registration
	series      store
	limiters    limiters
	reloads     reloads
	stores      sharedStores
	collected   atomic.Bool // somebody has read our counters
}

// instant is embedded under a name that is not exported.
type instant = deadline.Instant

// New makes a Telemetry. The error is that of options, which [errors.Is]
// [ErrInvalidOptions], or of a MeterProvider that makes no instruments.
func New(options *Options) (*Telemetry, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Telemetry{
		options:    o.withDefaults(),
		onlyCounts: o.Logger == nil && o.Enrich == nil && o.SeverityFunc == nil && !o.Spans,
	}
	t.instant = deadline.InstantIf(true, t) // of what Options have, only OnEvent calls functions
	t.series.init(t.options.MaxSeries, o.LeaseDuration)
	if o.Spans {
		t.tracer = tracerProvider(o).Tracer(scope)
	}
	meter := meterProvider(o).Meter(scope)
	if err := t.instruments.make(meter, t.options.LeaseDuration); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	callback, err := meter.RegisterCallback(t.observe, t.instruments.observables()...)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t.callback = callback
	return t, nil
}

func meterProvider(o Options) metric.MeterProvider {
	if o.MeterProvider == nil {
		return otel.GetMeterProvider()
	}
	return o.MeterProvider
}

func tracerProvider(o Options) trace.TracerProvider {
	if o.TracerProvider == nil {
		return otel.GetTracerProvider()
	}
	return o.TracerProvider
}

// Close ends the export of what is read when metrics are collected: counters and
// gauges. Call it when no execution reports to t any more; what is reported
// nevertheless goes on to the histograms, the spans and the log. Calling it again
// does nothing.
func (t *Telemetry) Close() error { return t.callback.Unregister() }

// Enabled tells whether anybody wants to know of an execution in ctx: the metrics
// have a reader, the span of ctx records, or the Logger would take a line. A
// pipeline asks when an execution begins, and if not reports nothing.
func (t *Telemetry) Enabled(ctx context.Context) bool {
	return t.measuring(ctx) || t.tracer != nil || t.logging(ctx) || trace.SpanFromContext(ctx).IsRecording()
}

// measuring tells whether metrics go anywhere. An observable does not say whether
// it is read, so that shows only when it has been: a program that drops every
// histogram and keeps the counters counts from the first collection on.
func (t *Telemetry) measuring(ctx context.Context) bool {
	return len(t.instruments.asked) != 0 && (t.collected.Load() || t.instruments.recording(ctx))
}

func (t *Telemetry) logging(ctx context.Context) bool {
	return t.options.Logger != nil && t.options.Logger.Enabled(ctx, levelCritical)
}

// An occurrence is an event with what is said about it everywhere.
type occurrence struct {
	pipeline.Event                      // its Severity is what SeverityFunc says
	own            pipeline.Severity    // that of the event itself
	errorType      string               // "" for success
	extra          []attribute.KeyValue // of Enrich
}

// OnEvent counts, writes the log line, and adds the span event. It implements
// [pipeline.Listener].
//
// A panic of Enrich, SeverityFunc, ResultFormatter, an error's methods or the Logger's handler reaches
// the caller of the execution. The event is counted all the same.
func (t *Telemetry) OnEvent(ctx context.Context, e pipeline.Event) {
	span := trace.SpanFromContext(ctx)
	if e.Err == nil && t.onlyCounts && !span.IsRecording() { // nearly always, so this way is short
		if len(t.instruments.asked) != 0 { // Enabled has said whether they go anywhere
			t.count(ctx, &e, "", nil)
		}
		return
	}
	t.tell(ctx, &occurrence{Event: e, own: e.Severity}, span)
}

// tell is OnEvent where there is more to do than to count.
func (t *Telemetry) tell(ctx context.Context, o *occurrence, span trace.Span) {
	t.examine(ctx, o)
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

// examine fills in what is known of o, and counts it, also if a function of the program panics on the way.
func (t *Telemetry) examine(ctx context.Context, o *occurrence) {
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
		o.Severity = severity(t.options.SeverityFunc(o.Event))
	}
}

// severity takes what is no severity for None.
func severity(s pipeline.Severity) pipeline.Severity {
	if s > pipeline.SeverityCritical {
		return pipeline.SeverityNone
	}
	return s
}

// Forget drops every series kept for the pipeline and instance of source, or for
// one strategy of it if that is set. A registry calls it when a pipeline was
// removed and its last execution has ended. What comes of that pipeline later
// begins at 0.
//
// The SDK keeps what a histogram has recorded, and has no way to take it back: a
// reader of cumulative temporality, such as Prometheus, goes on to see the
// durations of a pipeline that is gone, unchanged.
func (t *Telemetry) Forget(source pipeline.Source) { t.series.forget(source) }

var _ pipeline.LeaseMeasurer = (*Telemetry)(nil)
