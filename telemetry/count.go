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

// count does what metrics there are for an event.
func (t *Telemetry) count(ctx context.Context, o *occurrence) {
	from := t.series.source(&o.Source)
	k := key{operation: o.Operation, errorType: o.errorType}
	if o.extra != nil {
		set := attribute.NewSet(slices.Clone(o.extra)...) // it sorts what it is given
		k.extra = set.Equivalent()
	}
	switch o.Name {
	case pipeline.EventPipelineExecuted:
		// Neither the event nor its severity is an attribute: they are the same for
		// every execution, and the SDK pays for each attribute of each recording.
		s := t.series.series(from, executions, &k, o.extra)
		t.instruments.executions.Record(ctx, o.Duration.Seconds(), s.record...)
	case pipeline.EventExecutionAttempt:
		k.severity, k.attempt, k.handled = o.Severity, min(o.Attempt, mostAttempts), o.Handled
		s := t.series.series(from, attempts, &k, o.extra)
		t.instruments.attempts.Record(ctx, o.Duration.Seconds(), s.record...)
	default:
		k.event, k.severity = o.Name, o.Severity
		t.series.series(from, events, &k, o.extra).count.Add(1)
		if from != t.series.rest {
			t.series.circuit(from, o.Name)
		}
	}
}
