package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/telemetry"
)

func event(pipelineName, strategy, operation string) pipeline.Event {
	return pipeline.Event{
		Name: "OnRetry", Severity: pipeline.SeverityWarning, Operation: operation,
		Source: pipeline.Source{Pipeline: pipelineName, Strategy: strategy},
	}
}

// Operation keys can come from users. Beyond the bound the sums are right, and the series from before stay apart.
func TestOptions_MaxSeries(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 10})
	for n := range 100 {
		for range 2 {
			l.Hooks().OnEvent(t.Context(), event("orders", "Retry", fmt.Sprint("op", n)))
		}
	}
	l.Hooks().OnEvent(t.Context(), event("jobs", "Retry", "op"))
	l.Hooks().OnEvent(t.Context(), event("orders", "Retry", "op9"))

	counted := collect(t, reader)["weir.strategy.events"]
	assert.Len(t, counted.points, 12)
	assert.EqualValues(t, 3, counted.sum("operation.key", "op9"))
	orders := counted.at(t, map[string]any{"otel.metric.overflow": true, "pipeline.name": "orders", "strategy.name": "Retry"})
	assert.EqualValues(t, 180, orders.value)
	jobs := counted.at(t, map[string]any{"otel.metric.overflow": true, "pipeline.name": "jobs", "strategy.name": "Retry"})
	assert.EqualValues(t, 1, jobs.value)
}

// measure measures a request for permits and, when they are granted, the end of the lease.
func measure(t *testing.T, l *telemetry.Telemetry, e pipeline.Event) {
	t.Helper()
	e.Name = "RateLimiterRequest"
	ended := l.Hooks().OnMeasurement(t.Context(), e)
	e.Name = "RateLimiterLease"
	ended(t.Context(), e)
}

// Pipelines beyond the bound have a common series each, up to the bound, and then one for all.
func TestOptions_MaxSeriesOfPipelines(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 3})
	for n := range 10 {
		e := event(fmt.Sprint("p", n), "", "")
		l.Hooks().OnEvent(t.Context(), e)
		l.Hooks().OnEvent(t.Context(), e)
		measure(t, l, e)
	}
	overflow := func(name string) map[string]any {
		return map[string]any{"otel.metric.overflow": true, "pipeline.name": name}
	}
	metrics := collect(t, reader)
	assert.Len(t, metrics["weir.strategy.events"].points, 3+3+1)
	assert.EqualValues(t, 2, metrics["weir.strategy.events"].at(t, overflow("p5")).value)
	assert.EqualValues(t, 8, metrics["weir.strategy.events"].at(t, overflow("_OTHER")).value)
	others := overflow("_OTHER")
	assert.Zero(t, metrics["weir.rate_limiter.lease.active"].at(t, others).value)
	others["result"] = "acquired"
	assert.EqualValues(t, 7, metrics["weir.rate_limiter.requests"].at(t, others).value)
}

// The SDK takes a series that has otel.metric.overflow alone for its own, and puts later ones into it. Events without a source have none
// such, and pipelines that come into force after the bound was reached have their own again when others are forgotten.
func TestOptions_MaxSeriesOfHistograms(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 2, LeaseDuration: true})
	report := func(name string) {
		e := event(name, "", "")
		for _, e.Name = range []string{pipeline.EventPipelineExecuted, pipeline.EventExecutionAttempt} {
			l.Hooks().OnEvent(t.Context(), e)
		}
		e.Duration = time.Second
		measure(t, l, e)
	}
	for _, name := range []string{"a", "b", ""} {
		report(name)
	}
	l.Hooks().Forget(pipeline.Source{Pipeline: "b"})
	report("c")
	metrics := collect(t, reader)
	for _, name := range []string{
		"weir.pipeline.duration", "weir.attempt.duration", "weir.rate_limiter.lease.duration", "weir.rate_limiter.queue.duration",
	} {
		seen := map[any]uint64{}
		for _, p := range metrics[name].points {
			seen[p.attributes["pipeline.name"]] += p.count
		}
		assert.Equal(t, map[any]uint64{"a": 1, "b": 1, "_OTHER": 1, "c": 1}, seen, name)
	}
}

func TestForget(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 4})
	source := func(name, instance, strategy string) pipeline.Source {
		return pipeline.Source{Pipeline: name, Instance: instance, Strategy: strategy}
	}
	all := []pipeline.Source{
		source("orders", "eu", "Retry"), source("orders", "eu", "RateLimiter"), source("orders", "us", "Retry"), source("jobs", "eu", "Retry"),
	}
	for _, s := range all {
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning, Source: s})
		l.Hooks().OnMeasurement(t.Context(), pipeline.Event{Name: "RateLimiterRequest", Source: s})
	}
	seen := func() (sources []string) {
		metrics := collect(t, reader)
		assert.Len(t, metrics["weir.rate_limiter.requests"].points, len(metrics["weir.strategy.events"].points))
		assert.Len(t, metrics["weir.rate_limiter.lease.active"].points, len(metrics["weir.strategy.events"].points))
		for _, p := range metrics["weir.strategy.events"].points {
			sources = append(sources, fmt.Sprintf("%v/%v/%v", p.attributes["pipeline.name"], p.attributes["pipeline.instance"], p.attributes["strategy.name"]))
		}
		return sources
	}
	assert.Len(t, seen(), 4)

	l.Hooks().Forget(source("orders", "eu", ""))
	assert.ElementsMatch(t, []string{"orders/us/Retry", "jobs/eu/Retry"}, seen())
	l.Hooks().Forget(source("orders", "us", "Timeout"))
	l.Hooks().Forget(source("orders", "us", "Retry"))
	l.Hooks().Forget(source("orders", "", ""))
	assert.Equal(t, []string{"jobs/eu/Retry"}, seen())

	for _, s := range all[:3] { // there is room for them again
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "OnRetry", Severity: pipeline.SeverityWarning, Source: s})
		l.Hooks().OnMeasurement(t.Context(), pipeline.Event{Name: "RateLimiterRequest", Source: s})
	}
	assert.ElementsMatch(t, []string{"orders/eu/Retry", "orders/eu/RateLimiter", "orders/us/Retry", "jobs/eu/Retry"}, seen())
	metrics := collect(t, reader)
	for _, p := range metrics["weir.strategy.events"].points {
		assert.EqualValues(t, 1, p.value)
	}
	for _, p := range metrics["weir.rate_limiter.lease.active"].points {
		assert.EqualValues(t, 1, p.value)
	}
}

// A reader that comes when the pipeline has gone still sees that it was removed.
func TestForget_KeepsThatAPipelineWasRemoved(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 3})
	report := func(name, event string) {
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: event, Severity: pipeline.SeverityWarning, Source: pipeline.Source{Pipeline: name}})
	}
	counts := func() map[string]float64 {
		found := map[string]float64{}
		for _, p := range collect(t, reader)["weir.strategy.events"].points {
			found[fmt.Sprintf("%v %v", p.attributes["pipeline.name"], p.attributes["event.name"])] = p.value
		}
		return found
	}
	for _, event := range []string{"OnReload", "OnPipelineRemoved", "DisposeFailed"} {
		report("orders", event)
	}
	kept := map[string]float64{"orders OnPipelineRemoved": 1, "orders DisposeFailed": 1}
	l.Hooks().Forget(pipeline.Source{Pipeline: "orders"})
	assert.Equal(t, kept, counts())
	l.Hooks().Forget(pipeline.Source{Pipeline: "orders"})
	assert.Equal(t, kept, counts())

	// Defined again and removed again, it counts on, and there is room for one more series.
	report("orders", "OnPipelineRemoved")
	report("jobs", "OnReload")
	assert.Equal(t, map[string]float64{"orders OnPipelineRemoved": 2, "orders DisposeFailed": 1, "jobs OnReload": 1}, counts())
	report("jobs", "ReloadFailed")
	assert.Contains(t, counts(), "jobs <nil>", "the overflow")
}

// However many pipelines were removed, a new one has room for its own series.
func TestForget_RemovedPipelinesLeaveRoom(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 20})
	report := func(name, event string) {
		l.Hooks().OnEvent(t.Context(), pipeline.Event{Name: event, Severity: pipeline.SeverityWarning, Source: pipeline.Source{Pipeline: name}})
	}
	for n := range 30 {
		name := fmt.Sprint("p", n)
		report(name, "OnPipelineRemoved")
		l.Hooks().Forget(pipeline.Source{Pipeline: name})
	}
	report("new", "OnReload")
	events := collect(t, reader)["weir.strategy.events"]
	var names []any
	for _, p := range events.points {
		assert.NotContains(t, p.attributes, "otel.metric.overflow")
		names = append(names, p.attributes["pipeline.name"])
	}
	assert.ElementsMatch(t, []any{"p28", "p29", "new"}, names, "the last tenth of the limit is still there")
}

// A pipeline beyond the bound can get its own series while it holds a lease.
func TestOnMeasurement_BeyondMaxSeries(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 1})
	held := make(chan struct{})
	release := make(chan struct{})
	p := func(name string) *pipeline.Pipeline {
		permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 10}))
		return weir.Must(pipeline.Config{Name: name, Listener: l, Strategies: []pipeline.Strategy{ratelimit.New(permits, nil)}}.Build())
	}
	require.NoError(t, p("old").Execute(t.Context(), succeed))
	newer := p("new")
	done := make(chan error)
	go func() {
		done <- newer.Execute(t.Context(), func(context.Context) error { close(held); <-release; return nil })
	}()
	<-held
	l.Hooks().Forget(pipeline.Source{Pipeline: "old"})
	require.NoError(t, newer.Execute(t.Context(), succeed), "there is room for its series now")
	close(release)
	require.NoError(t, <-done)
	active := collect(t, reader)["weir.rate_limiter.lease.active"].points
	require.NotEmpty(t, active)
	for _, p := range active {
		assert.Zero(t, p.value, p.attributes)
	}
}

// The end of a lease whose source was forgotten does not reduce the number of leases that are held now.
func TestOnMeasurement_Forgotten(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	request := pipeline.Event{Name: "RateLimiterRequest", Source: pipeline.Source{Pipeline: "orders"}}
	lease := pipeline.Event{Name: "RateLimiterLease", Source: request.Source}
	old := l.Hooks().OnMeasurement(t.Context(), request)
	l.Hooks().Forget(request.Source)
	newer := l.Hooks().OnMeasurement(t.Context(), request)
	active := func() float64 {
		return collect(t, reader)["weir.rate_limiter.lease.active"].at(t, map[string]any{"pipeline.name": "orders"}).value
	}
	old(t.Context(), lease)
	assert.EqualValues(t, 1, active())
	newer(t.Context(), lease)
	assert.Zero(t, active())
}

func TestOptions_MaxSeriesOfRequests(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 10})
	rejected := &ratelimit.RejectedError{}
	for n := range 10 {
		e := event(fmt.Sprint("p", n), "", "")
		e.Name = "RateLimiterRequest"
		l.Hooks().OnMeasurement(t.Context(), e)
		e.Err = rejected
		l.Hooks().OnMeasurement(t.Context(), e)
	}
	requests := collect(t, reader)["weir.rate_limiter.requests"]
	assert.Len(t, requests.points, 12, "10, and one for each result beyond")
	assert.EqualValues(t, 10, requests.sum("result", "acquired"))
	assert.EqualValues(t, 10, requests.sum("result", "rejected"))

	for n := range 10 { // room again
		l.Hooks().Forget(pipeline.Source{Pipeline: fmt.Sprint("p", n)})
	}
	e := event("q", "", "")
	e.Name = "RateLimiterRequest"
	l.Hooks().OnMeasurement(t.Context(), e)
	own := collect(t, reader)["weir.rate_limiter.requests"].at(t, map[string]any{"pipeline.name": "q", "result": "acquired"})
	assert.EqualValues(t, 1, own.value)
}
