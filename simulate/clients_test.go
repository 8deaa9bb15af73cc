package simulate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/strategies/retry"
)

func TestReaction_Delay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	delays := func(o Reaction) (all []time.Duration) {
		for attempt := range 5 {
			all = append(all, o.delay(attempt, r)/ms)
		}
		return all
	}
	assert.Equal(t, []time.Duration{10, 10, 10, 10, 10}, delays(Reaction{Delay: 10 * ms}))
	assert.Equal(t, []time.Duration{10, 20, 30, 40, 50}, delays(Reaction{Delay: 10 * ms, Backoff: retry.Linear}))
	assert.Equal(t, []time.Duration{10, 20, 40, 80, 160}, delays(Reaction{Delay: 10 * ms, Backoff: retry.Exponential}))
	assert.Equal(t, []time.Duration{10, 20, 25, 25, 25}, delays(Reaction{Delay: 10 * ms, Backoff: retry.Exponential, MaxDelay: 25 * ms}))
	assert.Equal(t, []time.Duration{0, 0, 0, 0, 0}, delays(Reaction{Backoff: retry.Exponential, Jitter: true}))
	huge := Reaction{Delay: time.Hour, Backoff: retry.Exponential, Jitter: true}
	for attempt := range 100 {
		assert.Positive(t, huge.delay(attempt, r), attempt)
	}
	jittered, sum := Reaction{Delay: 10 * ms, Backoff: retry.Linear, Jitter: true}, time.Duration(0)
	for range 10_000 {
		d := jittered.delay(1, r)
		assert.True(t, d > 0 && d <= 20*ms)
		sum += d
	}
	assert.InEpsilon(t, 10*ms, sum/10_000, 0.03, "the mean of all parts")
}

// refuses has a window in which only the first request passes.
const refuses = `pipelines: {p: {strategies: [{rate_limiter: {fixed_window: {permit_limit: 1, window: 4s}}}]}}`

func TestClients_OnRejection(t *testing.T) {
	one := Load{For: 10 * time.Second, Open: &Open{Rate: Bursts{Size: 2, First: time.Second}}}
	run := func(o Reaction) *Result {
		return through(t, Scenario{Config: config(refuses), Load: one, Clients: Clients{OnRejection: o, OnFailure: Reaction{MaxRetries: 9}}})
	}
	r := run(Reaction{})
	assert.Equal(t, Counts{Requests: 2, Offered: 2, Admitted: 1, Rejected: 1, Succeeded: 1, Calls: 1, Satisfied: 1}, r.Total)
	near(t, time.Second, r.Ended)

	r = run(Reaction{MaxRetries: 2})
	assert.EqualValues(t, 3, r.Total.Rejected)
	assert.EqualValues(t, 2, r.Total.TriedAgain)
	near(t, time.Second, r.Ended)

	r = run(Reaction{MaxRetries: 2, Delay: 100 * ms, Backoff: retry.Exponential})
	near(t, time.Second+300*ms, r.Ended)

	r = run(Reaction{MaxRetries: 2, Delay: 100 * ms, RetryAfter: true})
	assert.EqualValues(t, 2, r.Total.Satisfied)
	near(t, 4*time.Second, r.Ended)

	r = run(Reaction{MaxRetries: 1, Delay: 5 * time.Second, RetryAfter: true})
	near(t, 6*time.Second, r.Ended)
	assert.EqualValues(t, 2, r.Total.Satisfied, "the longer of the two waits counts")

	r = run(Reaction{MaxRetries: 1, Delay: 3500 * ms})
	assert.EqualValues(t, 2, r.Total.Satisfied)
}

// Clients that are told the same come back together, unless they have a delay with jitter.
func TestClients_SpreadRetryAfter(t *testing.T) {
	s := Scenario{
		Config:  config(`pipelines: {p: {strategies: [{rate_limiter: {fixed_window: {permit_limit: 100, window: 4s}}}]}}`),
		Load:    Load{For: 10 * time.Second, Open: &Open{Rate: Sum{Bursts{Size: 100}, Bursts{Size: 100, First: time.Second}}}},
		Clients: Clients{OnRejection: Reaction{MaxRetries: 1, Delay: 400 * ms, RetryAfter: true}},
		Windows: []time.Duration{10 * ms},
	}
	r := through(t, s)
	assert.EqualValues(t, 200, r.Total.Satisfied)
	near(t, 4*time.Second, r.Ended)

	s.Clients.OnRejection.Jitter = true
	s.Load.Open.Rate = Sum{Bursts{Size: 100, First: time.Second}, Bursts{Size: 1}}
	s.Config = config(`pipelines: {p: {strategies: [{rate_limiter: {fixed_window: {permit_limit: 1, window: 4s}}}]}}`)
	r = through(t, s)
	assert.EqualValues(t, 100, r.Total.TriedAgain)
	assert.InDelta(t, 4090*ms, r.Ended, float64(11*ms), "over a quarter of the delay")
}

func TestClients_OnFailure(t *testing.T) {
	r := through(t, Scenario{
		Load:    atOnce(10),
		Service: Service{Latency: Fixed{ms}, Periods: []Period{{To: 100 * ms, FailureRate: new(1.0)}}},
		Clients: Clients{OnFailure: Reaction{MaxRetries: 2, Delay: 40 * ms}, OnRejection: Reaction{MaxRetries: 100}},
	})
	assert.Equal(t, Counts{Requests: 10, Offered: 30, Admitted: 30, Failed: 30, Calls: 30, TriedAgain: 20}, r.Total)

	r = through(t, Scenario{
		Load:    atOnce(10),
		Service: Service{Latency: Fixed{ms}, Periods: []Period{{To: 100 * ms, FailureRate: new(1.0)}}},
		Clients: Clients{OnFailure: Reaction{MaxRetries: 3, Delay: 40 * ms, Backoff: retry.Linear}},
	})
	assert.Equal(t, Counts{Requests: 10, Offered: 30, Admitted: 30, Failed: 20, Succeeded: 10, Calls: 30, TriedAgain: 20, Satisfied: 10}, r.Total)
}

// A client that has waited long enough leaves: in the service, and in the queue of a limiter.
func TestClients_Timeout(t *testing.T) {
	r := through(t, Scenario{
		Load:    atOnce(10),
		Service: Service{Latency: Fixed{time.Second}},
		Clients: Clients{Timeout: 100 * ms, OnFailure: Reaction{MaxRetries: 1, Delay: 50 * ms}},
	})
	assert.Equal(t, Counts{Requests: 10, Offered: 20, Admitted: 20, Failed: 20, Calls: 20, TriedAgain: 10}, r.Total)
	assert.Equal(t, map[string]int64{"the client left": 20}, r.Failures)
	near(t, 250*ms, r.Ended)
	assert.EqualValues(t, 20, r.Series[len(r.Series)-1].Running, "the service has not noticed")

	r = through(t, Scenario{
		Config:  config(`pipelines: {p: {strategies: [{rate_limiter: {concurrency: {permit_limit: 1, queue_limit: 20, queue_order: newest_first}}}]}}`),
		Load:    atOnce(10),
		Service: Service{Latency: Fixed{80 * ms}},
		Clients: Clients{Timeout: 100 * ms, OnRejection: Reaction{MaxRetries: 1}},
	})
	assert.Equal(t, Counts{Requests: 10, Offered: 10, Admitted: 2, Queued: 9, Failed: 9, Succeeded: 1, Calls: 2, Satisfied: 1}, r.Total)
	about(t, 80*ms, r.Wait.Max)
	near(t, 100*ms, r.Ended)
	assert.EqualValues(t, 9, r.Series[0].Waiting)
}

// A timeout of the pipeline is a failure, wherever the execution waits.
func TestClients_PipelineTimeout(t *testing.T) {
	r := through(t, Scenario{
		Config: config(`pipelines: {p: {strategies: [{timeout: {timeout: 100ms}},
			{rate_limiter: {concurrency: {permit_limit: 1, queue_limit: 20, queue_order: newest_first}}}]}}`),
		Load:    atOnce(10),
		Service: Service{Latency: Fixed{80 * ms}},
		Clients: Clients{OnRejection: Reaction{MaxRetries: 1}},
	})
	assert.Equal(t, Counts{Requests: 10, Offered: 10, Admitted: 2, Queued: 9, Failed: 9, Succeeded: 1, Calls: 2, Satisfied: 1}, r.Total)
	assert.Equal(t, map[string]int64{"p/Timeout": 9}, r.Failures)
}

func TestClosed_SameKey(t *testing.T) {
	s := Scenario{Load: Load{For: time.Second, Keys: UniformKeys{1_000_000}, Closed: &Closed{Clients: 10, Think: Fixed{10 * ms}, SameKey: true}}}
	r := through(t, s)
	assert.Equal(t, 10, r.Keys.Count)
	assert.InDelta(t, 990, r.Total.Requests, 10)
	s.Load.Closed.SameKey = false
	r = through(t, s)
	assert.Greater(t, r.Keys.Count, 900)
}
