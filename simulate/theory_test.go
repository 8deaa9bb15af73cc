package simulate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/strategies/retry"
)

// bucketShare returns the share of Poisson arrivals that a token bucket without a queue admits.
//
// Let X be the tokens right after a replenishment, which comes once a period, and A the arrivals in a period, which are
// Poisson with a mean of load. min(X, A) of them are admitted, and the next X is min(limit, X - min(X, A) + tokens): a
// Markov chain with limit+1 states. What is missing in the bucket is a queue that is served in batches, M/D/1/K if
// tokens is 1. See Berger, "Performance Analysis of a Rate-Control Throttle where Tokens and Jobs Queue" (1991).
func bucketShare(limit, tokens int, load float64) float64 {
	arrivals := make([]float64, limit+1) // the probability of each A, in the last that of limit and more
	p, rest := math.Exp(-load), 1.0
	for a := range limit {
		arrivals[a] = p
		rest -= p
		p *= load / float64(a+1)
	}
	arrivals[limit] = rest
	x := make([]float64, limit+1)
	x[limit] = 1
	admitted := 0.0
	for before := -1.0; math.Abs(admitted-before) > 1e-12; {
		before, admitted = admitted, 0
		next := make([]float64, limit+1)
		for n, share := range x {
			for a, probability := range arrivals {
				taken := min(n, a)
				next[min(limit, n-taken+tokens)] += share * probability
				admitted += share * probability * float64(taken)
			}
		}
		x = next
	}
	return admitted / load
}

func TestRun_TokenBucketTheory(t *testing.T) {
	const requests, tolerance = 10_000.0, 0.02
	for _, c := range []struct {
		limit, tokens int
		load          float64 // arrivals in a period
	}{{1, 1, 1}, {5, 1, 0.9}, {10, 1, 1}, {3, 2, 2.5}, {40, 10, 10}, {20, 1, 2}} {
		const period = 20 * time.Millisecond
		rate := c.load / period.Seconds()
		r, err := Run(t.Context(), Scenario{
			Config: config(fmt.Sprintf("pipelines: {p: {strategies: [{rate_limiter: {token_bucket: {token_limit: %d, tokens_per_period: %d, replenishment_period: %v}}}]}}", c.limit, c.tokens, period)),
			Load:   Load{For: time.Duration(requests / rate * 1e9), Open: &Open{Rate: ConstantRate{rate}, Poisson: true}},
			Seed:   2,
		})
		require.NoError(t, err)
		assert.InEpsilon(t, bucketShare(c.limit, c.tokens, c.load), float64(r.Total.Admitted)/float64(r.Total.Offered), tolerance, "%+v", c)
	}
}

// The most that limiters let through in any window under bursts: a fixed window twice its limit, on both sides of the end of a
// window; a sliding window its limit within a window less one segment; a token bucket its burst and what comes by its rate.
func TestRun_MostInAnyWindow(t *testing.T) {
	edge := Sum{Bursts{Size: 200, First: 990 * ms}, Bursts{Size: 200, First: 1010 * ms}}
	for _, c := range []struct {
		limiter string
		rate    Rate
		most    map[time.Duration]int64
	}{
		{"fixed_window: {permit_limit: 50, window: 1s}", edge, map[time.Duration]int64{25 * ms: 100, 10 * ms: 50}},
		{"sliding_window: {permit_limit: 50, window: 1s, segments_per_window: 2}", append(edge, Ramp{To: 200, For: 4 * time.Second}), map[time.Duration]int64{500 * ms: 50}},
		{"sliding_window: {permit_limit: 50, window: 1s, segments_per_window: 10}", append(edge, Ramp{To: 200, For: 4 * time.Second}), map[time.Duration]int64{900 * ms: 50}},
		{"token_bucket: {token_limit: 50, tokens_per_period: 2, replenishment_period: 10ms}",
			Sum{Bursts{Size: 100, First: time.Second}, Steps{Steps: []Step{{For: time.Second}, {Rate: 1000}}}},
			map[time.Duration]int64{10 * ms: 52, 100 * ms: 70, time.Second: 250, 2 * time.Second: 450}},
	} {
		r := through(t, Scenario{
			Config:  config("pipelines: {p: {strategies: [{rate_limiter: {" + c.limiter + "}}]}}"),
			Load:    Load{For: 4 * time.Second, Open: &Open{Rate: c.rate}},
			Windows: slices.Collect(maps.Keys(c.most)),
		})
		for _, m := range r.Most {
			assert.LessOrEqual(t, m.Permits, c.most[m.Window], "%s in %v", c.limiter, m.Window)
			assert.GreaterOrEqual(t, m.Permits, c.most[m.Window]-5, "%s in %v", c.limiter, m.Window)
		}
	}
}

// A budget bounds what retries add, however much fails.
func TestRun_RetryBudgetBound(t *testing.T) {
	run := func(budget string) *Result {
		r, err := Run(t.Context(), Scenario{
			Config: config(`{budgets: {few: {ratio: 0.1, min_per_second: -1}}, pipelines: {p: {strategies: [
				{retry: {max_retries: 3, delay: 10ms, jitter: true` + budget + `}}]}}}`),
			Load:    constant(200, 20*time.Second),
			Service: Service{Latency: Exponential{5 * time.Millisecond}, FailureRate: 0.05, Periods: []Period{{From: 5 * time.Second, To: 15 * time.Second, FailureRate: new(1.0)}}},
		})
		require.NoError(t, err)
		return r
	}
	bounded, unbounded := run(", budget: few").Total, run("").Total
	assert.LessOrEqual(t, float64(bounded.Calls), 1.1*float64(bounded.Offered))
	assert.Greater(t, float64(bounded.Calls), 1.05*float64(bounded.Offered))
	assert.Greater(t, float64(unbounded.Calls), 2*float64(unbounded.Offered))
	assert.Equal(t, bounded.Calls, bounded.Admitted+bounded.Retried)
}

// A metastable failure: the service has room for more than all requests, but after an outage, it works for clients that
// have left and try again, and so the outage goes on when its cause has gone. With a budget the service recovers. See
// Bronson, Aghayev, Charapko and Zhu, "Metastable Failures in Distributed Systems" (2021).
//
// Clients that try again keep an overload going, too. If new ones always come, longer delays change nothing: each of them
// adds its calls later. See Brooker, "What is Backoff For?" (2022). If clients give up, the service recovers.
func TestRun_MetastableFailure(t *testing.T) {
	const tries = `{retry: {max_retries: 4, delay: 100ms, jitter: true%s}}, `
	for name, c := range map[string]struct {
		retry    string // of the pipeline
		clients  Reaction
		recovers bool
	}{
		"retries":                  {fmt.Sprintf(tries, ""), Reaction{}, false},
		"retries, with a budget":   {fmt.Sprintf(tries, ", budget: few"), Reaction{}, true},
		"clients try again":        {"", Reaction{MaxRetries: 4, Delay: 100 * time.Millisecond, Jitter: true}, false},
		"clients try again, later": {"", Reaction{MaxRetries: 4, Delay: time.Second, Backoff: retry.Exponential, Jitter: true}, false},
		"clients give up":          {"", Reaction{}, true},
	} {
		r, err := Run(t.Context(), Scenario{
			Config: config(`{budgets: {few: {ratio: 0.1, min_per_second: -1}},
				pipelines: {p: {strategies: [` + c.retry + `{timeout: {timeout: 500ms}}]}}}`),
			Load: Load{For: 45 * time.Second, Open: &Open{Rate: ConstantRate{35}, Poisson: true}},
			Service: Service{Latency: Exponential{100 * time.Millisecond}, Capacity: 5, QueueLimit: 100,
				Periods: []Period{{From: 10 * time.Second, To: 15 * time.Second, Capacity: 1}}},
			Clients:  Clients{OnFailure: c.clients},
			Interval: time.Second,
		})
		require.NoError(t, err)
		for _, p := range r.Series[5:10] {
			assert.Greater(t, p.Succeeded, p.Offered/2, "%s: before the outage", name)
		}
		var succeeded, calls float64 // in each second at the end
		for _, p := range r.Series[35:45] {
			succeeded += float64(p.Succeeded) / 10
			calls += float64(p.Calls) / 10
		}
		t.Logf("%s: %.1f succeeded, %.1f calls a second", name, succeeded, calls)
		if c.recovers {
			assert.Greater(t, succeeded, 28.0, name)
			assert.Less(t, calls, 42.0, name)
		} else {
			assert.Less(t, succeeded, 20.0, "%s: of 35 a second", name)
			assert.Greater(t, calls, 48.0, "%s: the service has room for 50 a second", name)
		}
	}
}
