package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/pipeline"
)

// addTo adds the event to a span that records. Of the result it shows only the text of an error: results can be large
// and secret.
func (o *occurrence) addTo(span trace.Span) {
	attrs := o.attributes()
	if o.Err != nil {
		attrs = append(attrs, attribute.String(keyResult, sendable(o.Err.Error(), maxText)))
	}
	if o.hasDuration() {
		attrs = append(attrs, attribute.Float64(keyDuration, o.Duration.Seconds()))
	}
	span.AddEvent(sendable(o.Name, maxValue), trace.WithAttributes(attrs...))
}

// addSpan makes the span of an execution or an attempt that has just ended.
func (o *occurrence) addSpan(ctx context.Context, tracer trace.Tracer, m *metrics) {
	made := o.spanStart(m)
	if made == nil {
		return
	}
	ended := time.Now()
	_, span := tracer.Start(ctx, made.name, trace.WithTimestamp(ended.Add(-o.Duration)), made.attributes)
	if o.Err != nil {
		span.SetStatus(codes.Error, sendable(o.Err.Error(), maxText))
	}
	span.End(trace.WithTimestamp(ended))
}

// spanStart returns the spanStart of o, or nil if o has no span.
func (o *occurrence) spanStart(m *metrics) *spanStart {
	name := "pipeline"
	switch o.Name {
	case pipeline.EventPipelineExecuted:
	case pipeline.EventExecutionAttempt:
		name = "attempt"
	default:
		return nil
	}
	// A series has the attributes of the span, except where the span has more: those of Enrich, a high number of an
	// attempt, and another severity of an execution. Such a span gets its own attributes.
	var s *series
	if o.extra == nil && o.Attempt < maxAttempt && (o.Severity == pipeline.SeverityInformation || name == "attempt") {
		_, of, k := m.seriesOf(&o.Event, o.errorType, nil)
		of.get(k, nil)
		s = (*of.own.Load())[k]
	}
	if s != nil {
		if made := s.span.Load(); made != nil {
			return made
		}
	}
	if o.Source.Pipeline != "" {
		name += " " + sendable(o.Source.Pipeline, maxValue)
	}
	made := &spanStart{name: name, attributes: trace.WithAttributes(o.attributes()...)}
	if s != nil {
		s.span.Store(made)
	}
	return made
}
