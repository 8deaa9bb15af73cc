package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/weir-go/weir/pipeline"
)

// levelCritical is above every level that slog has a name for.
const levelCritical = slog.LevelError + 4

var levels = [...]slog.Level{
	pipeline.SeverityDebug:       slog.LevelDebug,
	pipeline.SeverityInformation: slog.LevelInfo,
	pipeline.SeverityWarning:     slog.LevelWarn,
	pipeline.SeverityError:       slog.LevelError,
	pipeline.SeverityCritical:    levelCritical,
}

// message returns the message of the log line. It is the constant part of the message that Polly logs; the rest is in
// the attributes.
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

// log writes the log line of o, unless its severity is SeverityNone.
func (o *occurrence) log(ctx context.Context, options *Options) {
	if o.Severity == pipeline.SeverityNone {
		return
	}
	level := o.level(ctx)
	if options.Logger.Enabled(ctx, level) {
		options.Logger.LogAttrs(ctx, level, message(o.Name), o.logAttributes(options.ResultFormatter)...)
	}
}

// level returns the level of the line: that of the severity, with two exceptions at Debug. An attempt is also told by
// what follows it, OnRetry, OnHedging or the end of the execution. An execution that has succeeded, or that has ended
// because its caller did, is nothing out of the ordinary. If a SeverityFunc returns another severity than the event's own,
// there is no exception. If it returns the event's own severity, there is, because the function may be there to change
// other events.
func (o *occurrence) level(ctx context.Context) slog.Level {
	if o.Severity == o.ownSeverity {
		switch o.Name {
		case pipeline.EventExecutionAttempt:
			return slog.LevelDebug
		case pipeline.EventPipelineExecuted:
			if o.Err == nil || endedByCaller(ctx, o.Err) {
				return slog.LevelDebug
			}
		}
	}
	return levels[o.Severity]
}

// endedByCaller reports whether an execution has the error of its own context, which is the caller's.
func endedByCaller(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

func (o *occurrence) logAttributes(format func(result any) any) []slog.Attr {
	attributes := o.attributes()
	attrs := make([]slog.Attr, 0, len(attributes)+2)
	for _, a := range attributes {
		attrs = append(attrs, slog.Any(string(a.Key), a.Value.AsInterface()))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String(keyResult, o.Err.Error()))
	} else if shown := shownResult(o.Result, format); shown != nil {
		attrs = append(attrs, slog.Any(keyResult, shown))
	}
	if o.hasDuration() {
		attrs = append(attrs, slog.Duration(keyDuration, o.Duration))
	}
	return attrs
}

// shownResult returns what the line shows of a result; nil is nothing. Without a ResultFormatter no value gets into the
// log, because results can be secret.
func shownResult(result any, format func(result any) any) any {
	if result == nil {
		return nil
	}
	if _, ok := result.(described); ok {
		return nil // it has attributes of its own
	}
	if format != nil {
		return format(result)
	}
	if response, ok := result.(*http.Response); ok && response != nil {
		return response.StatusCode
	}
	return nil
}

// hasDuration reports whether the line shows a duration. That of an execution or an attempt is shown even if it is 0.
func (o *occurrence) hasDuration() bool {
	return o.Duration > 0 || o.Name == pipeline.EventPipelineExecuted || o.Name == pipeline.EventExecutionAttempt
}
