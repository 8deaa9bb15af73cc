package pipeline

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
)

// String returns the name and instance, as in "orders/eu-1", or "pipeline" if both are empty.
func (p *Pipeline) String() string { return cmp.Or(p.load().source.String(), "pipeline") }

// LogValue implements [slog.LogValuer]: a pipeline is logged as its String.
func (p *Pipeline) LogValue() slog.Value { return slog.StringValue(p.String()) }

// LogValue implements [slog.LogValuer]: a source is logged as its String.
func (s Source) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the name and the names of the strategies, the outermost first: "orders: Retry, RateLimiter".
func (d Description) String() string {
	name := cmp.Or(joinParts(d.Name, d.Instance), "pipeline")
	if len(d.Strategies) == 0 {
		return name
	}
	return name + ": " + strings.Join(d.strategyNames(), ", ")
}

// LogValue implements [slog.LogValuer]: a group of the name, the instance, the number of running executions, and the
// names of the strategies.
func (d Description) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("name", d.Name)}
	if d.Instance != "" {
		attrs = append(attrs, slog.String("instance", d.Instance))
	}
	return slog.GroupValue(append(attrs, slog.Int("running", d.Running), slog.Any("strategies", d.strategyNames()))...)
}

func (d Description) strategyNames() []string {
	names := make([]string, len(d.Strategies))
	for i, s := range d.Strategies {
		names[i] = cmp.Or(s.Name, s.Kind)
	}
	return names
}

// String returns what happened and where, without the Result: "OnRetry Warning orders/Retry: boom".
func (e Event) String() string {
	text := fmt.Sprintf("%s %v", e.Name, e.Severity)
	if source := e.Source.String(); source != "" {
		text += " " + source
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]: a group of the fields that are set, without the Result, which can be
// confidential.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("name", e.Name), slog.String("severity", e.Severity.String())}
	if source := e.Source.String(); source != "" {
		attrs = append(attrs, slog.String("source", source))
	}
	if e.Operation != "" {
		attrs = append(attrs, slog.String("operation", e.Operation))
	}
	if e.Name == EventExecutionAttempt || e.Attempt != 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt), slog.Bool("handled", e.Handled))
	}
	if e.Duration != 0 {
		attrs = append(attrs, slog.Duration("duration", e.Duration))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return slog.GroupValue(attrs...)
}
