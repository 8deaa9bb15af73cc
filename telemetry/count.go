package telemetry

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
)

// maxAttempt is the highest attempt.number of metrics. Later attempts count as this one: a retry without an end would
// otherwise make series without an end.
const maxAttempt = 100

// kindOf returns the kind of an event of that name.
func kindOf(event string) kind {
	switch event {
	case pipeline.EventPipelineExecuted:
		return executions
	case pipeline.EventExecutionAttempt:
		return attempts
	default:
		return events
	}
}

// keyOf returns the key of e among the series of kind i.
func keyOf(i kind, e *pipeline.Event, errorType string, extra []attribute.KeyValue) key {
	k := key{operation: e.Operation, errorType: errorType}
	if extra != nil {
		set := attribute.NewSet(slices.Clone(extra)...) // NewSet sorts its arguments in place
		k.extra = set.Equivalent()
	}
	switch i {
	case executions:
		// Neither the event nor its severity is an attribute: they are the same for every execution, and each
		// attribute makes each recording slower.
	case attempts:
		k.severity, k.attempt, k.handled = e.Severity, min(e.Attempt, maxAttempt), e.Handled
	default:
		k.event, k.severity = e.Name, e.Severity
	}
	return k
}

// count records e in the metrics.
func (t *Telemetry) count(ctx context.Context, e *pipeline.Event, errorType string, extra []attribute.KeyValue) {
	from, i := t.series.source(&e.Source), kindOf(e.Name)
	s := from.tables[i].findPlain(i, e, errorType, extra)
	if s == nil {
		k := keyOf(i, e, errorType, extra)
		s = t.series.series(from, i, &k, extra)
	}
	switch i {
	case executions:
		t.instruments.executions.Record(ctx, e.Duration.Seconds(), s.record...)
	case attempts:
		t.instruments.attempts.Record(ctx, e.Duration.Seconds(), s.record...)
	default:
		s.count.Add(1)
		if from != t.series.overflow {
			t.series.circuit(from, e.Name)
		}
	}
}

// findPlain returns the first series of the table if it is plain and the series of e, else nil. It is faster than find,
// because e needs no key.
func (t *table) findPlain(i kind, e *pipeline.Event, errorType string, extra []attribute.KeyValue) *series {
	first := t.first.Load()
	if first == nil || !first.plain || errorType != "" || extra != nil || !equal(first.key.operation, e.Operation) {
		return nil
	}
	switch k := &first.key; {
	case i == attempts && (e.Attempt != 0 || e.Handled || k.severity != e.Severity):
		return nil
	case i == events && (k.severity != e.Severity || !equal(k.event, e.Name)):
		return nil
	}
	return first.series
}
