package telemetry

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
)

// maxAttempt is the highest attempt.number of metrics. Later attempts count as this one, because a retry without a
// limit on its attempts would make a series for each of them.
const maxAttempt = 100

// instrumentOf returns the instrument that counts events of that name.
func instrumentOf(event string) instrument {
	switch event {
	case pipeline.EventPipelineExecuted:
		return executions
	case pipeline.EventExecutionAttempt:
		return attempts
	default:
		return events
	}
}

// keyOf returns the key of e among the series of the instrument.
func keyOf(i instrument, e *pipeline.Event, errorType string, extra []attribute.KeyValue) key {
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
	src, i := t.series.source(&e.Source), instrumentOf(e.Name)
	s := src.tables[i].findPlain(i, e, errorType, extra)
	if s == nil {
		k := keyOf(i, e, errorType, extra)
		s = t.series.seriesFor(src, i, &k, extra)
	}
	switch i {
	case executions:
		t.instruments.executions.Record(ctx, e.Duration.Seconds(), s.record...)
	case attempts:
		t.instruments.attempts.Record(ctx, e.Duration.Seconds(), s.record...)
	default:
		s.count.Add(1)
		if src != t.series.overflow {
			t.series.recordCircuit(src, e)
		}
	}
}

// findPlain returns the first series of the table if that is plain, see entry, and is the series of e. Otherwise it
// returns nil. It is faster than find, because e needs no key.
func (t *table) findPlain(i instrument, e *pipeline.Event, errorType string, extra []attribute.KeyValue) *series {
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
