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

// keyOf returns the instrument that counts e, and what tells its series apart.
func keyOf(e *pipeline.Event, errorType string, extra []attribute.KeyValue) (i kind, k key) {
	k = key{operation: e.Operation, errorType: errorType}
	if extra != nil {
		set := attribute.NewSet(slices.Clone(extra)...) // it sorts what it is given
		k.extra = set.Equivalent()
	}
	switch e.Name {
	case pipeline.EventPipelineExecuted:
		// Neither the event nor its severity is an attribute: they are the same for
		// every execution, and the SDK pays for each attribute of each recording.
		return executions, k
	case pipeline.EventExecutionAttempt:
		k.severity, k.attempt, k.handled = e.Severity, min(e.Attempt, mostAttempts), e.Handled
		return attempts, k
	default:
		k.event, k.severity = e.Name, e.Severity
		return events, k
	}
}

// count does what metrics there are for e.
func (t *Telemetry) count(ctx context.Context, e *pipeline.Event, errorType string, extra []attribute.KeyValue) {
	from := t.series.source(&e.Source)
	i, k := keyOf(e, errorType, extra)
	s := t.series.series(from, i, &k, extra)
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
