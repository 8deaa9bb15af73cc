package telemetry_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
)

// badHandler calls f for every record.
type badHandler struct {
	slog.Handler
	f func()
}

func (h badHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h badHandler) Handle(context.Context, slog.Record) error { h.f(); return nil }

// A function of the program that panics, or ends the goroutine, does so on the goroutine of the execution. The event is
// counted nevertheless.
func TestOnEvent_FunctionOfTheProgramPanics(t *testing.T) {
	for what, bad := range map[string]func(){"panic": func() { panic("bad") }, "Goexit": runtime.Goexit} {
		for name, o := range map[string]telemetry.Options{
			"Enrich": {Enrich: func(_ context.Context, _ pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
				bad()
				return attrs
			}},
			"SeverityFunc":    {SeverityFunc: func(pipeline.Event) pipeline.Severity { bad(); return pipeline.SeverityError }},
			"ResultFormatter": {Logger: slog.New(badHandler{f: func() {}}), ResultFormatter: func(any) any { bad(); return nil }},
			"Logger":          {Logger: slog.New(badHandler{f: bad})},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				l, reader := started(t, o)
				var panicked any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { panicked = recover() }()
					l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnCircuitOpened", Severity: pipeline.SeverityError, Result: 1})
				}()
				<-done
				assert.Equal(t, what == "panic", panicked != nil, "it goes through")
				metrics := collect(t, reader)
				assert.EqualValues(t, 1, metrics["weir.strategy.events"].sum("event.name", "OnCircuitOpened"))
				assert.EqualValues(t, 1, metrics["weir.circuit_breaker.state"].sum("state", "open"))
			})
		}
	}
}
