package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/pipeline"
)

// DefaultMaxSeries is what a zero in [Options.MaxSeries] stands for. It is half of
// where the SDK of OpenTelemetry itself begins to drop attributes.
const DefaultMaxSeries = 1000

// Options say where telemetry goes. The zero Options send metrics to the global
// MeterProvider, put events on the current span, and write no log.
type Options struct {
	// MeterProvider makes the instruments; nil is the global one, also if that is
	// set later. Make one Telemetry for it: what two of them say of the same
	// pipeline is added up.
	MeterProvider metric.MeterProvider `json:"-" yaml:"-"`
	// TracerProvider makes the spans that Spans asks for; nil is the global one.
	// Without Spans it has no use: events go to the span in the context, whoever
	// made that.
	TracerProvider trace.TracerProvider `json:"-" yaml:"-"`
	// Logger takes the log lines; nil: there are none.
	Logger *slog.Logger `json:"-" yaml:"-"`
	// SeverityFunc returns the severity of an event, in place of its own Severity.
	// event.severity and the level of the log line follow it. None silences only
	// the log line; a value that is not a severity counts as None.
	//
	// If nil, events have their own severity. The level of the log line is that of the
	// severity, with one exception: the line of a PipelineExecuted or an ExecutionAttempt
	// without an error is written at Debug, unless SeverityFunc returns another severity
	// than the event's own, which is Information.
	SeverityFunc func(e pipeline.Event) pipeline.Severity `json:"-" yaml:"-"`
	// Enrich appends attributes to attrs and returns it: they are added to the
	// metrics, the log line and the span event of e, but not to the instruments of
	// rate limiters. It cannot replace an attribute that is there anyway. It is
	// called for every event, by many executions at once, and makes each event
	// dearer by an allocation or more. Each value that it returns makes series of
	// its own, which count for MaxSeries: how many there are is yours to bound.
	// nil costs nothing.
	Enrich func(ctx context.Context, e pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue `json:"-" yaml:"-"`
	// ResultFormatter returns what a log line shows of a result; nil shows nothing.
	// It is not called for a result that is nil, or where there is an error, whose
	// text is shown. If ResultFormatter is nil, log lines show the status code of an
	// [*http.Response] and no other value.
	ResultFormatter func(result any) any `json:"-" yaml:"-"`
	// SpanSeverity is the least severity of an event that is put on the current
	// span; the zero value, None, puts all of them there. A span keeps 128 events
	// unless told otherwise: use Warning where one has many executions.
	SpanSeverity pipeline.Severity `json:"span_severity,omitempty" yaml:"span_severity,omitempty"`
	// Spans makes a span for each execution and each attempt, as a child of the
	// current one. They are made when it has ended, with the times it had: a
	// listener cannot change the context, so what the callback itself starts is a
	// sibling of these spans and not their child. Every execution reports then,
	// whether its span is sampled or not.
	Spans bool `json:"spans,omitempty" yaml:"spans,omitempty"`
	// LeaseDuration records weir.rate_limiter.lease.duration, how long permits were
	// held. It is off because each costs as much as weir.pipeline.duration, of
	// which it is a part.
	LeaseDuration bool `json:"lease_duration,omitempty" yaml:"lease_duration,omitempty"`
	// MaxSeries is how many combinations of attributes each instrument keeps; 0 is
	// 1000. Further ones are added up in one series for each strategy of a
	// pipeline, or for each pipeline where no strategy is shown, without
	// attributes beyond those and with otel.metric.overflow. No more than that many
	// strategies and pipelines are told apart, either. Requests to rate limiters
	// and the gauges of observed limiters beyond it are added up over all of them. A
	// circuit has three series, one for each state; the circuits beyond a third of
	// MaxSeries are counted by state.
	MaxSeries int `json:"max_series,omitempty" yaml:"max_series,omitempty"`
}

// ErrInvalidOptions is returned by [New]; the text names every field that is wrong.
var ErrInvalidOptions = errors.New("telemetry: invalid options")

func (o Options) validate() error {
	var problems []error
	if o.SpanSeverity > pipeline.SeverityCritical {
		problems = append(problems, fmt.Errorf("SpanSeverity is %v, must be one of None to Critical", o.SpanSeverity))
	}
	if o.MaxSeries < 0 {
		problems = append(problems, fmt.Errorf("MaxSeries is %d, must be at least 1, or 0 for %d", o.MaxSeries, DefaultMaxSeries))
	}
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %w", ErrInvalidOptions, problems[0])
	default:
		return fmt.Errorf("%w: %w; %w", ErrInvalidOptions, problems[0], problems[1])
	}
}

func (o Options) withDefaults() Options {
	if o.MaxSeries == 0 {
		o.MaxSeries = DefaultMaxSeries
	}
	return o
}
