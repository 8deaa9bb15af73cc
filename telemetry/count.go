package telemetry

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
)

// mostAttempts is the highest attempt.number of metrics; later attempts count for
// it. Whoever retries for ever would make series for ever.
const mostAttempts = 100

// kindOf returns the instrument that counts an event.
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

// keyOf returns what tells the series of e apart.
func keyOf(i kind, e *pipeline.Event, errorType string, extra []attribute.KeyValue) key {
	k := key{operation: e.Operation, errorType: errorType}
	if extra != nil {
		set := attribute.NewSet(slices.Clone(extra)...) // it sorts what it is given
		k.extra = set.Equivalent()
	}
	switch i {
	case executions:
		// Neither the event nor its severity is an attribute: they are the same for
		// every execution, and the SDK pays for each attribute of each recording.
	case attempts:
		k.severity, k.attempt, k.handled = e.Severity, min(e.Attempt, mostAttempts), e.Handled
	default:
		k.event, k.severity = e.Name, e.Severity
	}
	return k
}

// count does what metrics there are for e.
func (t *Telemetry) count(ctx context.Context, e *pipeline.Event, errorType string, extra []attribute.KeyValue) {
	from, i := t.series.source(&e.Source), kindOf(e.Name)
	s := from.tables[i].usual(i, e, errorType, extra)
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
		if from != t.series.rest {
			t.series.circuit(from, e.Name)
		}
	}
}

// usual returns the first series of the table if that is plain and the one of e. It does without the key.
func (t *table) usual(i kind, e *pipeline.Event, errorType string, extra []attribute.KeyValue) *series {
	first := t.first.Load()
	if first == nil || !first.plain || errorType != "" || extra != nil || !same(first.key.operation, e.Operation) {
		return nil
	}
	switch k := &first.key; {
	case i == attempts && (e.Attempt != 0 || e.Handled || k.severity != e.Severity):
		return nil
	case i == events && (k.severity != e.Severity || !same(k.event, e.Name)):
		return nil
	}
	return first.series
}
