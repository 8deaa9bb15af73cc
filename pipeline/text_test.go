package pipeline_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// logged returns v as a JSON log shows it.
func logged(v any) string {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key != "v" {
			return slog.Attr{}
		}
		return a
	}})).Info("", "v", v)
	return out.String()
}

func TestPipeline_Text(t *testing.T) {
	p := weir.Must(pipeline.Config{Name: "orders", Instance: "eu", Strategies: []pipeline.Strategy{passThrough{}}}.Build())
	assert.Equal(t, "orders/eu", fmt.Sprint(p))
	assert.JSONEq(t, `{"v":"orders/eu"}`, logged(p))
	assert.Equal(t, "pipeline", fmt.Sprint(new(pipeline.Pipeline)))
	assert.Equal(t, "pipeline", (*pipeline.Pipeline)(nil).String())
	assert.JSONEq(t, `{"v":"orders/Retry"}`, logged(pipeline.Source{Pipeline: "orders", Strategy: "Retry"}))
}

// The values of calls are not for logs.
func TestEvent_TextHasNoResult(t *testing.T) {
	e := pipeline.Event{
		Name: pipeline.EventExecutionAttempt, Severity: pipeline.SeverityWarning, Source: pipeline.Source{Pipeline: "orders", Strategy: "Retry"},
		Operation: "list", Result: "secret", Err: errBoom, Attempt: 1, Handled: true, Duration: time.Second,
	}
	assert.Equal(t, "ExecutionAttempt Warning orders/Retry: boom", fmt.Sprint(e))
	assert.JSONEq(t, `{"v":"ExecutionAttempt Warning orders/Retry: boom"}`, logged(e))
}

// A strategy's Close may close the pipeline again.
func TestPipeline_CloseCallsItself(t *testing.T) {
	s := new(closing)
	s.pipeline = weir.Must(pipeline.New("orders", s))
	assert.ErrorIs(t, s.pipeline.Close(), errBoom)
	assert.NoError(t, s.pipeline.Close(), "once")
	assert.Equal(t, 1, s.calls)
}

type closing struct {
	passThrough
	pipeline *pipeline.Pipeline
	calls    int
}

func (c *closing) Close() error {
	c.calls++
	if err := c.pipeline.Close(); err != nil {
		return err
	}
	return errBoom
}
