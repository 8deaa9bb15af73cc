package telemetry

import (
	"context"
	"log/slog"

	"github.com/weir-go/weir/pipeline"
)

// Critical is above every level that slog has a name for.
const levelCritical = slog.LevelError + 4

var levels = [...]slog.Level{
	pipeline.Debug:       slog.LevelDebug,
	pipeline.Information: slog.LevelInfo,
	pipeline.Warning:     slog.LevelWarn,
	pipeline.Error:       slog.LevelError,
	pipeline.Critical:    levelCritical,
}

// message is the constant part of what Polly logs; the rest is in the attributes.
func message(event string) string {
	switch event {
	case pipeline.EventPipelineExecuting:
		return "Resilience pipeline executing"
	case pipeline.EventPipelineExecuted:
		return "Resilience pipeline executed"
	case pipeline.EventExecutionAttempt:
		return "Execution attempt"
	default:
		return "Resilience event occurred"
	}
}

func (t *Telemetry) log(ctx context.Context, o *occurrence) {
	if o.Severity == pipeline.None {
		return
	}
	level := levels[o.Severity]
	if t.options.Logger.Enabled(ctx, level) {
		t.options.Logger.LogAttrs(ctx, level, message(o.Name), t.logAttributes(o)...)
	}
}

func (t *Telemetry) logAttributes(o *occurrence) []slog.Attr {
	attributes := o.attributes()
	attrs := make([]slog.Attr, 0, len(attributes)+2)
	for _, a := range attributes {
		attrs = append(attrs, slog.Any(string(a.Key), a.Value.AsInterface()))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String(keyResult, o.Err.Error()))
	} else if o.Result != nil {
		attrs = append(attrs, slog.Any(keyResult, t.options.ResultFormatter(o.Result)))
	}
	if o.hasDuration() {
		attrs = append(attrs, slog.Duration(keyDuration, o.Duration))
	}
	return attrs
}

// hasDuration tells whether the event has taken a time, if only none that the
// clock could measure.
func (o *occurrence) hasDuration() bool {
	return o.Duration > 0 || o.Name == pipeline.EventPipelineExecuted || o.Name == pipeline.EventExecutionAttempt
}
