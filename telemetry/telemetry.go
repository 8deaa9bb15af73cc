package telemetry

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
)

const scope = "github.com/weir-go/weir/telemetry"

// Telemetry is a [pipeline.Listener]. Make one with [New]; the zero value is not usable. It is
// safe for concurrent use.
type Telemetry struct {
	options    Options
	hooks      pipeline.Hooks
	tracer     trace.Tracer // nil without a TracerProvider
	onlyCounts bool         // an event without an error is only counted, unless a span records
	callback   metric.Registration
	collected  atomic.Bool // the counters have been read

	metrics  metrics
	requests seriesSet[requestKey]
	limiters observed[*observedLimiter]
	stores   observed[*observedStore]
	reloads  reloads
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
		onlyCounts: o.Logger == nil && o.Enrich == nil && o.SeverityFunc == nil && o.TracerProvider == nil,
	}
	t.hooks = pipeline.Hooks{
		OnEvent: t.onEvent, Enabled: t.enabled, OnMeasurement: t.metrics.onMeasurement, InForce: t.metrics.inForce, Forget: t.metrics.forget,
	}
	t.metrics.init(o.MaxSeries)
	t.requests.init(o.MaxSeries, requestKey.labels, requestKey.commonClass)
	if o.TracerProvider != nil {
		t.tracer = o.TracerProvider.Tracer(scope)
	}
	meter := o.MeterProvider.Meter(scope)
	if err := t.metrics.make(meter, o.LeaseDuration); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	callback, err := meter.RegisterCallback(t.observe, t.metrics.observables...)
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
//     only. Later events of that pipeline count from 0. The counts of OnPipelineRemoved and DisposeFailed stay
//     until a tenth of MaxSeries other pipelines were removed, because a reader that comes later would never see them. The SDK keeps what a histogram has recorded and cannot remove it: a reader
//     of cumulative temporality, such as Prometheus, continues to see the unchanged durations of a removed pipeline.
func (t *Telemetry) Hooks() pipeline.Hooks { return t.hooks }

// ObserveLimiter exports the available and the queued permits of l until stop is called, with name as the attribute
// limiter.name. Of several limiters with the same name the newest is exported. [Options.MaxSeries] bounds the names; the
// limiters beyond it are added up. stop can be called more than once.
//
// Each collection of metrics calls Statistics of all limiters at once, each on its own goroutine. A limiter that does not
// answer within a second, or that panics, is missing from that collection. It is not asked again before it has answered.
//
// A registry calls ObserveLimiter for the limiters that it owns. For other limiters, call it where the limiter is
// made, and call stop where the limiter is closed. Do not call it for the single limiters of a partitioned limiter:
// each key would make its own series.
func (t *Telemetry) ObserveLimiter(name string, l limiter.StatisticsProvider) (stop func()) {
	return t.limiters.add(name, &observedLimiter{limiter: l})
}

// ObserveStore exports the state of a store of shared limiters until stop is called, with name as the attribute
// store.name: whether the store and each shard of it are available, its round trips, and where decisions came from. It
// makes no round trip itself. stop can be called more than once.
func (t *Telemetry) ObserveStore(name string, s *store.Store) (stop func()) {
	return t.stores.add(name, &observedStore{store: s})
}

// OnStoreEvent returns a function for the option OnEvent of a [store.Store]. It writes a log line for each event, with
// name as store.name and the shard, if the event has one, as store.shard. Events that cost callers permits or make a
// limit inexact are warnings or errors. The key of the partition is not in the line. Without [Options.Logger] the
// function does nothing.
func (t *Telemetry) OnStoreEvent(name string) func(store.Event) {
	return func(e store.Event) {
		if t.options.Logger != nil {
			logStoreEvent(t.options.Logger, name, e)
		}
	}
}

// RecordRequest records an HTTP request that a server has answered: http.server.request.duration of OpenTelemetry's
// semantic conventions, and the longest of the last minute. Call it through the middleware weirhttp.Measure, which says
// what the arguments are. The attributes of arguments that are "" or 0 are left out. [Options.MaxSeries] bounds the
// combinations of arguments; requests beyond it are recorded in one series for each class of status, with the x00 of the
// class and otel.metric.overflow, so that the share of successes stays right. Requests without a status have the
// error.type _OTHER there.
func (t *Telemetry) RecordRequest(ctx context.Context, method, scheme, route string, status int, errorType string, took time.Duration) {
	if !t.measuring(ctx) {
		return
	}
	k := requestKey{method: method, scheme: scheme, route: route, status: status, errorType: errorType}
	s := t.requests.find(k)
	if s == nil {
		k.route = strings.Clone(route) // it can be a part of a longer string
		s = t.requests.get(k, nil)
	}
	t.metrics.histograms[httpTime].Record(ctx, took.Seconds(), s.record...)
	s.longest.record(clock.Now(), took)
}

// ConfigReloaded records an attempt to load the configuration at that time, the first one included. err is nil if it was
// successful. A watcher of a configuration file calls it, such as that of package reload.
func (t *Telemetry) ConfigReloaded(at time.Time, err error) { t.reloads.record(at, err) }

// enabled reports whether an event in ctx would be exported.
func (t *Telemetry) enabled(ctx context.Context) bool {
	return t.measuring(ctx) || t.tracer != nil || t.logging(ctx) || trace.SpanFromContext(ctx).IsRecording()
}

// measuring reports whether metrics are read. A histogram of OpenTelemetry reports whether it is read. For a counter,
// that is not known before the first collection. So if a program drops all histograms but keeps the counters, they
// count from the first collection on.
func (t *Telemetry) measuring(ctx context.Context) bool {
	return len(t.metrics.enabled) != 0 && (t.collected.Load() || t.metrics.recording(ctx))
}

// logging reports whether the Logger would write a line of some level.
func (t *Telemetry) logging(ctx context.Context) bool {
	return t.options.Logger != nil && t.options.Logger.Enabled(ctx, levelCritical)
}

func (t *Telemetry) onEvent(ctx context.Context, e pipeline.Event) {
	span := trace.SpanFromContext(ctx)
	if e.Err == nil && t.onlyCounts && !span.IsRecording() { // nearly every event
		if len(t.metrics.enabled) != 0 { // enabled has found that they are read
			t.metrics.count(ctx, &e, "", nil)
		}
		return
	}
	t.process(ctx, &occurrence{Event: e, ownSeverity: e.Severity}, span)
}

// process is onEvent for an event that is not only counted.
func (t *Telemetry) process(ctx context.Context, o *occurrence, span trace.Span) {
	t.complete(ctx, o)
	if t.options.Logger != nil {
		o.log(ctx, &t.options)
	}
	if span.IsRecording() && o.Severity >= t.options.SpanSeverity {
		o.addTo(span)
	}
	if t.tracer != nil {
		o.addSpan(ctx, t.tracer, &t.metrics)
	}
}

// complete fills in the fields that the event does not have, and counts it, even if a function of the program panics.
func (t *Telemetry) complete(ctx context.Context, o *occurrence) {
	if t.measuring(ctx) {
		defer func() { t.metrics.count(ctx, &o.Event, o.errorType, o.extra) }()
	}
	if o.Err != nil {
		o.errorType = errorType(o.Err)
	}
	if t.options.Enrich != nil {
		o.extra = t.options.Enrich(ctx, o.Event, nil)
	}
	if t.options.SeverityFunc != nil {
		o.Severity = t.options.SeverityFunc(o.Event)
	}
	if o.Severity > pipeline.SeverityCritical { // a strategy of the program, too, can report what is no severity
		o.Severity = pipeline.SeverityNone
	}
}

// observe exports counters and gauges when metrics are collected. A series that it does not observe is no longer
// exported. It returns no error, because a reader would drop the whole collection.
func (t *Telemetry) observe(ctx context.Context, observer metric.Observer) error {
	t.collected.Store(true)
	o := observation{observer, &t.metrics.instruments}
	observeLimiters(ctx, o, &t.limiters, t.options.MaxSeries) // first, because it can take a second
	t.metrics.observe(o)
	for s := range t.requests.each {
		o.float(httpLongest, s.longest.now().Seconds(), s.attributes)
	}
	t.reloads.observe(o)
	observeStores(o, &t.stores)
	return nil
}
