package deploytest

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// One Prometheus serves all tests of queries, because its start takes most of their time.
func TestQueries(t *testing.T) {
	f := startFleet(t)
	s := f.load(t)
	t.Run("every panel has data", f.testPanelsHaveData)
	t.Run("the demo's panels count what was sent", func(t *testing.T) { f.testDemo(t, s) })
	t.Run("the panels count what passed the gateways", func(t *testing.T) { f.testGateways(t, s) })
	t.Run("the other panels show the troubles", f.testTroubles)
	t.Run("every alert finds its trouble", f.testAlerts)
}

// ask evaluates one query of a panel for the processes of a job, at the end of the load.
func (f *fleet) ask(t *testing.T, job, expr string) []testserver.Sample {
	t.Helper()
	expr = expand(expr, map[string]string{"job": job, "__rate_interval": rateInterval.String()})
	found, err := f.prometheus.QueryAt(t.Context(), expr, f.loaded)
	require.NoError(t, err)
	return found
}

// testPanelsHaveData looks at all processes together, and demands numbers.
func (f *fleet) testPanelsHaveData(t *testing.T) {
	for _, p := range readDashboard(t, "weir.json").queried() {
		for _, query := range p.Targets {
			found := f.ask(t, ".*", query.Expr)
			numbers := 0
			for _, s := range found {
				if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
					numbers++
				}
			}
			assert.NotZero(t, numbers, "%s: %s: %v", p.Title, query.Expr, found)
		}
	}
}

// value is the value of the series of a panel with the legend, for the processes of a job.
func (f *fleet) value(t *testing.T, job, title, legend string) float64 {
	t.Helper()
	var legends []string
	for _, p := range readDashboard(t, "weir.json").queried() {
		if p.Title != title {
			continue
		}
		for _, query := range p.Targets {
			for _, s := range f.ask(t, job, query.Expr) {
				got := legendLabel.ReplaceAllStringFunc(query.LegendFormat, func(l string) string { return s.Labels[legendLabel.FindStringSubmatch(l)[1]] })
				if got == legend {
					return s.Value
				}
				legends = append(legends, got)
			}
		}
	}
	t.Fatalf("the panel %q has no series %q for the job %s, but %q", title, legend, job, legends)
	return 0
}

func (f *fleet) testDemo(t *testing.T, s sent) {
	const get, post = "GET /items/{user}", "POST /items/create"
	answers, requests := s.gets+s.rejected, s.gets+s.rejected+s.posts
	for _, exact := range []struct {
		title, legend string
		want          float64
	}{
		{"Successful GETs in all", "GET", s.gets},
		{"Successful POSTs in all", "POST", s.posts},
		{"Passes of the limiter", "passes", s.gets},
		{"Errors of the limiter", "all", s.rejected},
		{"Errors of the limiter", "rejected", s.rejected},
		{"Share of passes", "passes", 100 * s.gets / answers},
		{"Share of errors", "errors", 100 * s.rejected / answers},
	} {
		assert.InDelta(t, exact.want, f.value(t, "partner", exact.title, exact.legend), 1e-9, "%s, %s", exact.title, exact.legend)
	}
	shares := f.value(t, "partner", "Share of passes", "passes") + f.value(t, "partner", "Share of errors", "errors")
	assert.InDelta(t, 100, shares, 1e-9, "the two shares together")

	// Rates are those of the scrapes, and a user whose second request took two seconds to come is granted both.
	for legend, want := range map[string]float64{
		get: 100 * s.gets / answers, post: 100, "all": 100 * (s.gets + s.posts) / requests,
	} {
		assert.InDelta(t, want, f.value(t, "partner", "Share of successful requests", legend), 5, legend)
	}

	limiterMean := f.value(t, "partner", "Mean time in the limiter, by result", "acquired")
	limiterMax := f.value(t, "partner", "Max time in the limiter, with and without error", "without error")
	mean := f.value(t, "partner", "Mean request time now", "mean")
	assert.Positive(t, limiterMean)
	granted := f.value(t, "partner", "Share of successful requests", get) / 100
	assert.Less(t, granted*limiterMean, f.value(t, "partner", "Mean request time over time", get), "the limiter is a part of the requests")
	assert.LessOrEqual(t, limiterMean, limiterMax)
	assert.Positive(t, f.value(t, "partner", "Mean time in the limiter, by result", "rejected"))
	assert.Positive(t, f.value(t, "partner", "Max time in the limiter, with and without error", "with error"))
	for what, took := range map[string]float64{"limiter": limiterMax, "mean": mean} {
		assert.Less(t, took, s.longest.Seconds(), "%s: no more than the client has measured", what)
	}
	for _, legend := range []string{get, post} {
		assert.Positive(t, f.value(t, "partner", "Mean request time over time", legend))
		assert.Positive(t, f.value(t, "partner", "p99 of requests", legend))
	}
}

// testGateways looks at the same panels for the gateways.
func (f *fleet) testGateways(t *testing.T, s sent) {
	all := s.gatewayPassed + s.gatewayRejected
	for _, exact := range []struct {
		title, legend string
		want          float64
	}{
		{"Successful GETs in all", "GET", s.gatewayPassed},
		{"Passes of the limiter", "passes", s.gatewayPassed},
		{"Errors of the limiter", "rejected", s.gatewayRejected},
		{"Share of passes", "passes", 100 * s.gatewayPassed / all},
		{"Share of errors", "errors", 100 * s.gatewayRejected / all},
		{"Reloads", "success", 2},
	} {
		assert.InDelta(t, exact.want, f.value(t, "gateway", exact.title, exact.legend), 1e-9, "%s, %s", exact.title, exact.legend)
	}
	for _, instance := range f.targets["gateway"] {
		assert.EqualValues(t, 1, f.value(t, "gateway", "Configuration", instance))
		assert.EqualValues(t, 1, f.value(t, "gateway", "Stores", "shared of "+instance))
	}
	assert.Positive(t, f.value(t, "gateway", "Executions by pipeline", "partner"))
	assert.Positive(t, f.value(t, "gateway", "p99 of requests", "GET /items/{user}"))
}

// testTroubles looks at the process in which each scrape makes a round of troubles: one event a scrape is a rate of one
// by the interval.
func (f *fleet) testTroubles(t *testing.T) {
	instance := f.targets[troubled][0]
	const aScrape = float64(time.Second / scrapeInterval)
	for _, rate := range []struct {
		title, legend string
		want          float64
	}{
		{"Answers of limiters by result", "rejected", 3 * aScrape},
		{"Answers of limiters by result", "failed", 3 * aScrape},
		{"Rejections by policy", "http/shared", aScrape},
		{"Rejections by policy", "exhausted/RateLimiter", aScrape},
		{"Rejections in shadow mode", "shadow/RateLimiter", aScrape},
		{"Answers without a decision", "http/closed", aScrape},
		{"Answers without a decision", "http/open let pass", aScrape},
		{"Executions by pipeline", "retries", aScrape},
		{"Failed executions by error", "timeout *timeout.Error", aScrape},
		{"Failed executions by error", "broken *errors.errorString", aScrape},
		{"Failed executions by error", "budget *errors.errorString", aScrape},
		{"Attempts by number", "retries 1", aScrape},
		{"Retries, hedges, timeouts, fallbacks", "retries OnRetry", aScrape},
		{"Retries, hedges, timeouts, fallbacks", "hedge OnHedging", aScrape},
		{"Retries, hedges, timeouts, fallbacks", "timeout OnTimeout", aScrape},
		{"Retries, hedges, timeouts, fallbacks", "fallback OnFallback", aScrape},
		{"Retries, hedges, timeouts, fallbacks", "budget OnBudgetExhausted", aScrape},
		{"Calls of stores", "flaky failure", aScrape},
		{"Decisions of shared limiters", "away outage", aScrape},
		{"Decisions of shared limiters", "flaky outage", aScrape},
		{"Decisions of shared limiters", "flaky store", aScrape},
		{"Warnings and errors", "OnRetry (Warning)", aScrape},
	} {
		// A machine that stands still misses scrapes.
		share := f.value(t, troubled, rate.title, rate.legend) / rate.want
		assert.Greater(t, share, 0.35, "%s, %s", rate.title, rate.legend)
		assert.Less(t, share, 1.4, "%s, %s", rate.title, rate.legend)
	}
	for _, now := range []struct {
		title, legend string
		want          float64
	}{
		{"Permits available", "stock of " + instance, 0},
		{"Permits waited for", "stock of " + instance, 1},
		{"Permits held", "stock/RateLimiter", 1},
		{"Circuit states", "circuit/CircuitBreaker of " + instance, 2},
		{"Stores", "away of " + instance, 0},
		{"Stores", "flaky of " + instance, 1},
		{"Configuration", instance, 0},
		{"Overrides of limits", "stock OnLimiterOverridden", 1},
		{"Reloads", "success", 1},
		{"Reloads", "failure", 1},
	} {
		assert.Equal(t, now.want, f.value(t, troubled, now.title, now.legend), "%s, %s", now.title, now.legend)
	}
	age := f.value(t, troubled, "Age of the configuration", instance)
	assert.Positive(t, age)
	assert.Less(t, age, 10*patience.Seconds())
}

// testAlerts demands that the expression of each alert finds the troubled process, or the dead one, and no other, and that
// Prometheus has made an alert of it.
func (f *fleet) testAlerts(t *testing.T) {
	for _, r := range alerts(t) {
		want := f.targets[troubled][0]
		if r.Alert == "WeirInstanceDown" {
			want = dead
		}
		found, err := f.prometheus.Query(t.Context(), r.Expr)
		require.NoError(t, err, r.Alert)
		assert.NotEmpty(t, found, "%s finds nothing: %s", r.Alert, r.Expr)
		for _, s := range found {
			assert.Equal(t, want, s.Labels["instance"], "%s finds %v", r.Alert, s.Labels)
		}
		assert.EventuallyWithT(t, func(c *assert.CollectT) {
			active, err := f.prometheus.Query(t.Context(), `ALERTS{alertname="`+r.Alert+`"}`)
			require.NoError(c, err)
			require.NotEmpty(c, active)
		}, patience, 50*time.Millisecond, "%s is not evaluated", r.Alert)
	}
}
