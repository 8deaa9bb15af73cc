package telemetry

import (
	"cmp"
	"context"
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// DefaultMaxSeries is the default of [Options.MaxSeries]. It is half of the number at which the SDK of OpenTelemetry
// begins to drop attributes.
const DefaultMaxSeries = 1000

// Options configure a [Telemetry]. The zero value sends metrics to the global MeterProvider, adds events to the current
// span, and writes no log.
type Options struct {
	// MeterProvider makes the instruments. If nil, it is the global one, even if the program sets the global one
	// later. Make one Telemetry for each provider: if two with the same provider get events of the same pipeline,
	// their counts are added up.
	MeterProvider metric.MeterProvider `json:"-" yaml:"-"`
	// TracerProvider makes a span for each execution and each attempt, as a child of the current span. The span is made at the end,
	// with the start time of the execution: a listener cannot change the context, so spans that the callback starts are
	// siblings of these spans and not their children. With a TracerProvider every execution reports, even if its span is not
	// sampled. If nil, no spans are made, and events go to the span in the context only. otel.GetTracerProvider returns the global
	// one.
	TracerProvider trace.TracerProvider `json:"-" yaml:"-"`
	// Logger takes the log lines. If nil, none are written.
	Logger *slog.Logger `json:"-" yaml:"-"`
	// SeverityFunc returns the severity of an event. The attribute event.severity and the level of the log line follow it.
	// SeverityNone suppresses only the log line. A value that is no severity counts as SeverityNone.
	//
	// If nil, events have their own severity. The level of the log line follows the severity, with two exceptions that are
	// logged at Debug: an ExecutionAttempt, and a PipelineExecuted without an error or with that of its own context. The
	// exceptions end where SeverityFunc returns another severity than the event's own.
	SeverityFunc func(e pipeline.Event) pipeline.Severity `json:"-" yaml:"-"`
	// Enrich appends attributes to attrs and returns the result. They are added to the metrics, the log line and the span
	// event of e, but not to the metrics of rate limiters, and they cannot replace an attribute of this package. If nil,
	// no attributes are added.
	//
	// Enrich is called for every event, by many executions at once, and costs at least an allocation each time. Every
	// value that it returns makes new series, which count for MaxSeries, so it must return few different values.
	Enrich func(ctx context.Context, e pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue `json:"-" yaml:"-"`
	// ResultFormatter returns what a log line shows of a result; nil shows nothing. It is not called if the result is nil,
	// or if there is an error, whose text is shown. If ResultFormatter is nil, log lines show the status code of an
	// [*http.Response] and no other value.
	ResultFormatter func(result any) any `json:"-" yaml:"-"`
	// SpanSeverity is the lowest severity of the events that are added to the current span. The zero value, SeverityNone,
	// adds all of them. A span keeps 128 events by default: use SeverityWarning where one span has many executions.
	SpanSeverity pipeline.Severity `json:"span_severity,omitempty" yaml:"span_severity,omitempty"`
	// LeaseDuration records weir.rate_limiter.lease.duration, the time for which permits are held. It is off by default,
	// because each recording costs as much as one of weir.pipeline.duration, which contains that time.
	LeaseDuration bool `json:"lease_duration,omitempty" yaml:"lease_duration,omitempty"`
	// MaxSeries is the number of combinations of attributes that each instrument keeps. If 0, it is [DefaultMaxSeries].
	//
	// Events and objects beyond it are counted in common series, with the attribute otel.metric.overflow and without the
	// attributes that differ:
	//
	//   - events and durations in one series for each strategy of a pipeline, or for the pipeline itself: in MaxSeries such
	//     series at most, and in one for all others;
	//   - requests to rate limiters in one series for each result;
	//   - HTTP requests in one series for each class of status;
	//   - the gauges of observed limiters in one series;
	//   - circuits, which have three series each, in one series for each state.
	MaxSeries int `json:"max_series,omitempty" yaml:"max_series,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o stands for the defaults.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var p validate.Problems
	if o.SpanSeverity > pipeline.SeverityCritical {
		p.Add("SpanSeverity", o.SpanSeverity, "must be one of None to Critical")
	}
	if o.MaxSeries < 0 {
		p.Add("MaxSeries", o.MaxSeries, "must be at least 1, or 0 for %d", DefaultMaxSeries)
	}
	return p.Err("telemetry")
}

func (o Options) withDefaults() Options {
	o.MaxSeries = cmp.Or(o.MaxSeries, DefaultMaxSeries)
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	return o
}
