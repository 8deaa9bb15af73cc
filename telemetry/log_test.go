package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/telemetry"
)

// logged returns the log lines of the events, without their times.
func logged(t *testing.T, o telemetry.Options, level slog.Level, events ...pipeline.Event) []string {
	t.Helper()
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	l := newTelemetry(t, o)
	for _, e := range events {
		l.Hooks().OnEvent(t.Context(), e)
	}
	if log.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(log.String()), "\n")
}

func TestLog(t *testing.T) {
	source := pipeline.Source{Pipeline: "orders", Instance: "eu-1", Strategy: "Retry"}
	whole := pipeline.Source{Pipeline: "orders"}
	got := logged(t, telemetry.Options{}, slog.LevelDebug,
		pipeline.Event{Name: pipeline.EventPipelineExecuting, Severity: pipeline.SeverityDebug, Source: whole, Operation: "list"},
		pipeline.Event{Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityWarning, Source: source, Err: errBoom, Attempt: 4, Handled: true, Duration: 123 * time.Millisecond},
		pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning, Source: source, Result: 7},
		pipeline.Event{Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation, Source: whole, Duration: 10 * time.Second},
		pipeline.Event{Name: "OnReload", Severity: pipeline.SeverityCritical, Duration: time.Second},
	)
	assert.Equal(t, []string{
		`level=DEBUG msg="Resilience pipeline executing" event.name=PipelineExecuting event.severity=Debug pipeline.name=orders operation.key=list`,
		`level=DEBUG msg="Execution attempt" event.name=ExecutionAttempt event.severity=Warning pipeline.name=orders pipeline.instance=eu-1 strategy.name=Retry error.type=*errors.errorString attempt.number=4 attempt.handled=true result=boom duration=123ms`,
		`level=WARN msg="Resilience event occurred" event.name=OnRetry event.severity=Warning pipeline.name=orders pipeline.instance=eu-1 strategy.name=Retry`,
		`level=DEBUG msg="Resilience pipeline executed" event.name=PipelineExecuted event.severity=Information pipeline.name=orders duration=10s`,
		`level=ERROR+4 msg="Resilience event occurred" event.name=OnReload event.severity=Critical duration=1s`,
	}, got)
}

// The line and the span event of an override say who, why, until when and what.
func TestLog_Override(t *testing.T) {
	o := registry.Override{
		Limiter: "per-client", Options: limiter.ConcurrencyOptions{PermitLimit: 2}, Until: time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC),
		By: "ann", Reason: "a sale",
	}
	source := pipeline.Source{Strategy: "per-client"}
	formatter := func(any) any { return "not called" }
	began := pipeline.Event{Name: registry.EventOverridden, Severity: pipeline.SeverityWarning, Source: source, Result: o}
	o.Ended = "ended by bob"
	ended := pipeline.Event{Name: registry.EventOverrideEnded, Severity: pipeline.SeverityInformation, Source: source, Result: o}
	assert.Equal(t, []string{
		`level=WARN msg="Resilience event occurred" event.name=OnLimiterOverridden event.severity=Warning strategy.name=per-client limiter.name=per-client override.by=ann override.reason="a sale" override.until=2026-11-23T09:00:00Z override.options="{PermitLimit:2 QueueLimit:0 QueueOrder:oldest_first QueueLimitPerTenant:0}"`,
		`level=INFO msg="Resilience event occurred" event.name=OnLimiterOverrideEnded event.severity=Information strategy.name=per-client limiter.name=per-client override.by=ann override.reason="a sale" override.until=2026-11-23T09:00:00Z override.options="{PermitLimit:2 QueueLimit:0 QueueOrder:oldest_first QueueLimitPerTenant:0}" override.ended="ended by bob"`,
	}, logged(t, telemetry.Options{ResultFormatter: formatter}, slog.LevelDebug, began, ended))
}

func TestLog_Levels(t *testing.T) {
	event := pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning}
	assert.Empty(t, logged(t, telemetry.Options{}, slog.LevelError, event), "a level that the log does not take")

	for severity, level := range map[pipeline.Severity]string{
		pipeline.SeverityNone: "", pipeline.Severity(99): "",
		pipeline.SeverityDebug: "DEBUG", pipeline.SeverityInformation: "INFO", pipeline.SeverityWarning: "WARN", pipeline.SeverityError: "ERROR", pipeline.SeverityCritical: "ERROR+4",
	} {
		o := telemetry.Options{SeverityFunc: func(pipeline.Event) pipeline.Severity { return severity }}
		lines := logged(t, o, slog.LevelDebug, event)
		if level == "" {
			assert.Empty(t, lines, severity)
			continue
		}
		assert.Len(t, lines, 1, severity)
		assert.True(t, strings.HasPrefix(lines[0], "level="+level+" "), lines[0])
	}
	event.Severity = 99 // of a strategy of the program
	assert.Empty(t, logged(t, telemetry.Options{}, slog.LevelDebug, event))
}

func TestOptions_ResultFormatter(t *testing.T) {
	event := func(result any, err error) pipeline.Event {
		return pipeline.Event{Name: "E", Severity: pipeline.SeverityError, Result: result, Err: err}
	}
	tests := []struct {
		name   string
		format func(any) any
		event  pipeline.Event
		want   string // the end of the line
	}{
		{"value", nil, event("hello", nil), " event.severity=Error"},
		{"response", nil, event(&http.Response{StatusCode: http.StatusTeapot}, nil), " result=418"},
		{"no response", nil, event((*http.Response)(nil), nil), " event.severity=Error"},
		{"own shows nothing", func(any) any { return nil }, event("hello", nil), " event.severity=Error"},
		{"nothing", nil, event(nil, nil), " event.severity=Error"},
		{"error", nil, event("hello", errBoom), " result=boom"},
		{"own", func(r any) any { return strings.ToUpper(r.(string)) }, event("hello", nil), " result=HELLO"},
		{"own and nothing", func(any) any { panic("not called") }, event(nil, nil), " event.severity=Error"},
		{"own and an error", func(any) any { panic("not called") }, event("hello", errors.New("bad")), " result=bad"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lines := logged(t, telemetry.Options{ResultFormatter: tt.format}, slog.LevelDebug, tt.event)
			if assert.Len(t, lines, 1) {
				assert.True(t, strings.HasSuffix(lines[0], tt.want), lines[0])
			}
		})
	}
}

func TestLog_Enrich(t *testing.T) {
	o := telemetry.Options{Enrich: func(_ context.Context, _ pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
		return append(attrs, attribute.String("region", "eu"), attribute.String("event.name", "other"))
	}}
	lines := logged(t, o, slog.LevelDebug, pipeline.Event{Name: "E", Severity: pipeline.SeverityError})
	assert.Equal(t, []string{`level=ERROR msg="Resilience event occurred" event.name=E event.severity=Error region=eu`}, lines)
}

// A program has as many lines of successful calls as it has calls, so they are logged at Debug.
func TestLog_LevelOfSuccess(t *testing.T) {
	executed := pipeline.Event{Name: pipeline.EventPipelineExecuted, Severity: pipeline.SeverityInformation}
	attempt := pipeline.Event{Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityInformation}
	failed, failedAttempt := executed, attempt
	failed.Err, failedAttempt.Err = errBoom, errBoom
	handled := attempt
	handled.Severity, handled.Handled = pipeline.SeverityWarning, true
	opened := pipeline.Event{Name: "OnCircuitClosed", Severity: pipeline.SeverityInformation}
	events := []pipeline.Event{executed, attempt, failed, failedAttempt, handled, opened}
	levels := func(o telemetry.Options) (levels []string) {
		for _, line := range logged(t, o, slog.LevelDebug, events...) {
			level, rest, _ := strings.Cut(line, " ")
			levels = append(levels, level)
			if !strings.Contains(rest, "event.severity=Warning") {
				assert.Contains(t, rest, "event.severity=Information", "as in Polly")
			}
		}
		return levels
	}
	assert.Equal(t, []string{"level=DEBUG", "level=DEBUG", "level=INFO", "level=DEBUG", "level=DEBUG", "level=INFO"}, levels(telemetry.Options{}))
	own := telemetry.Options{SeverityFunc: func(e pipeline.Event) pipeline.Severity { return e.Severity }}
	assert.Equal(t, levels(telemetry.Options{}), levels(own), "it asks for nothing else")
	one := telemetry.Options{SeverityFunc: func(e pipeline.Event) pipeline.Severity {
		if e.Name == pipeline.EventExecutionAttempt {
			return pipeline.SeverityWarning
		}
		return e.Severity
	}}
	assert.Equal(t, []string{"level=DEBUG", "level=WARN"}, levels(one)[:2], "only what it changes")
}

// With the options of the README, the results of calls are not logged.
// A caller that gives up in a queue is no error of the program, and a failed execution writes no line twice.
func TestLog_LinesOfAnExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := newTelemetry(t, telemetry.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 9}))
		p := weir.Must(pipeline.Config{Name: "partner", Listener: l, Strategies: []pipeline.Strategy{
			retry.New(&retry.Options{MaxRetries: 2}), ratelimit.New(slots, nil),
		}}.Build())
		lines := func() int {
			defer text.Reset()
			return strings.Count(text.String(), "\n")
		}
		require.ErrorIs(t, p.Execute(t.Context(), fail), errBoom)
		assert.Equal(t, 3, lines(), "two retries and the end")

		lease := weir.Must(slots.TryAcquire(t.Context(), 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Execute(ctx, succeed), context.DeadlineExceeded)
		assert.Zero(t, lines())
		lease.Release()

		own := func(context.Context) error { return context.DeadlineExceeded } // of a context of the callback's
		require.ErrorIs(t, p.Execute(t.Context(), own), context.DeadlineExceeded)
		assert.Equal(t, 3, lines())
	})
}

func TestLog_ShowsNoResults(t *testing.T) {
	type user struct{ Name, PasswordHash string }
	var log bytes.Buffer
	l := newTelemetry(t, telemetry.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	p := ordinary(t, l)
	_, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (*user, error) { return &user{"ann", "$2a$secret"}, nil })
	assert.NoError(t, err)
	assert.Contains(t, log.String(), pipeline.EventPipelineExecuted)
	assert.NotContains(t, log.String(), "ann")
	assert.NotContains(t, log.String(), "secret")
}
