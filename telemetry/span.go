package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/pipeline"
)

// addEvent puts the event on a span that records. Of the result it shows an
// error's text only: a span is no place for values.
func (t *Telemetry) addEvent(span trace.Span, o *occurrence) {
	if o.Severity < t.options.SpanSeverity {
		return
	}
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
func (t *Telemetry) addSpan(ctx context.Context, o *occurrence) {
	name := "pipeline"
	switch o.Name {
	case pipeline.EventPipelineExecuted:
	case pipeline.EventExecutionAttempt:
		name = "attempt"
	default:
		return
	}
	if o.Source.Pipeline != "" {
		name += " " + sendable(o.Source.Pipeline, maxValue)
	}
	ended := time.Now()
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(ended.Add(-o.Duration)), trace.WithAttributes(o.attributes()...))
	if o.Err != nil {
		span.SetStatus(codes.Error, sendable(o.Err.Error(), maxText))
	}
	span.End(trace.WithTimestamp(ended))
}
