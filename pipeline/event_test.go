package pipeline_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

func collect(into *[]pipeline.Event) pipeline.Listener {
	return pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) { *into = append(*into, e) })
}

func names(events []pipeline.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.Name+" "+e.Source.String())
	}
	return all
}

// reporter reports one event, and one that is not to be reported.
type reporter struct{}

func (reporter) Name() string { return "Reporter" }

func (reporter) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	next.Report(ctx, pipeline.Event{Name: "Silent", Severity: pipeline.SeverityNone})
	next.Report(ctx, pipeline.Event{Name: "Noted", Severity: pipeline.SeverityWarning, Source: pipeline.Source{Pipeline: "forged"}, Operation: "forged"})
	return next.Run(ctx)
}

func TestPipeline_ExecuteReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []pipeline.Event
		p := weir.Must(pipeline.Config{
			Name: "orders", Instance: "eu-1", Strategies: []pipeline.Strategy{reporter{}}, Listener: collect(&events),
		}.Build())
		ctx := pipeline.WithOperation(t.Context(), "GET /orders")
		_, err := pipeline.ExecuteValue(ctx, p, func(context.Context) (string, error) {
			time.Sleep(3 * time.Second)
			return "half", errBoom
		})
		assert.Same(t, errBoom, err)
		whole := pipeline.Source{Pipeline: "orders", Instance: "eu-1"}
		part := pipeline.Source{Pipeline: "orders", Instance: "eu-1", Strategy: "Reporter"}
		assert.Equal(t, []pipeline.Event{
			{Name: "PipelineExecuting", Severity: pipeline.SeverityDebug, Source: whole, Operation: "GET /orders"},
			{Name: "Noted", Severity: pipeline.SeverityWarning, Source: part, Operation: "GET /orders"},
			{Name: "PipelineExecuted", Severity: pipeline.SeverityInformation, Source: whole, Operation: "GET /orders", Result: "half", Err: errBoom, Duration: 3 * time.Second},
		}, events)
	})
}

func TestOperation(t *testing.T) {
	type key struct{}
	assert.Empty(t, pipeline.Operation(t.Context()))
	ctx := pipeline.WithOperation(context.WithValue(t.Context(), key{}, 1), "outer")
	assert.Equal(t, "outer", pipeline.Operation(ctx))
	assert.Equal(t, 1, ctx.Value(key{}), "other values go through")
	assert.Equal(t, "inner", pipeline.Operation(pipeline.WithOperation(ctx, "inner")))
	assert.Equal(t, "outer", pipeline.Operation(context.WithValue(ctx, key{}, 2)))
	child, cancel := context.WithCancel(ctx)
	cancel()
	assert.Equal(t, context.Canceled, child.Err())
	assert.NoError(t, ctx.Err())
}

func TestSeverity_Text(t *testing.T) {
	for severity, text := range []string{"None", "Debug", "Information", "Warning", "Error", "Critical"} {
		var s pipeline.Severity
		require.NoError(t, s.UnmarshalText([]byte(strings.ToLower(text))))
		assert.Equal(t, pipeline.Severity(severity), s)
		assert.Equal(t, text, s.String())
	}
	_, err := pipeline.Severity(99).MarshalText()
	assert.ErrorContains(t, err, `Severity must be one of None, Debug, Information, Warning, Error, Critical, got "Severity(99)"`)
}

func TestSource_Text(t *testing.T) {
	assert.Equal(t, "orders/eu-1/RateLimiter", pipeline.Source{Pipeline: "orders", Instance: "eu-1", Strategy: "RateLimiter"}.String())
	assert.Empty(t, pipeline.Source{}.String())
	assert.Equal(t, "orders/RateLimiter", pipeline.Source{Pipeline: "orders", Strategy: "RateLimiter"}.String())
	assert.Equal(t, "RateLimiter", pipeline.Source{Strategy: "RateLimiter"}.String())
}
