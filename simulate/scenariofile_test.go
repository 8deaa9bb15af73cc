package simulate_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
	"github.com/weir-go/weir/strategies/retry"
)

func TestParseScenario(t *testing.T) {
	data, err := os.ReadFile("testdata/load.yaml")
	require.NoError(t, err)
	s, err := simulate.ParseScenario("load.yaml", data)
	require.NoError(t, err)
	ms := time.Millisecond
	assert.Equal(t, simulate.Scenario{
		Load: simulate.Load{
			For: 10 * time.Minute,
			Open: &simulate.Open{Poisson: true, Rate: simulate.Steps{Steps: []simulate.Step{
				{Rate: 200, For: 2 * time.Minute}, {Rate: 400, Ramp: time.Minute},
			}}},
			Keys: simulate.ZipfKeys{Count: 1000, Exponent: 1.1},
		},
		Service: simulate.Service{
			Latency: simulate.LogNormal{Median: 20 * ms, P99: 150 * ms}, Capacity: 16,
			Periods: []simulate.Period{{From: 3 * time.Minute, To: 5 * time.Minute, FailureRate: new(1.0)}},
		},
		Clients: simulate.Clients{
			Timeout:     2 * time.Second,
			OnRejection: simulate.Reaction{MaxRetries: 3, Delay: 100 * ms, Backoff: retry.Exponential, Jitter: true, RetryAfter: true},
		},
	}, s)
	s.Config = simulate.File("x.yaml", []byte("pipelines: {a: {strategies: []}}"), nil)
	assert.NoError(t, s.Validate())
}

// load returns the load of a file with these fields of the section load.
func load(t *testing.T, fields string) simulate.Load {
	t.Helper()
	s, err := simulate.ParseScenario("x.yaml", []byte("load: {"+fields+"}"))
	require.NoError(t, err, fields)
	return s.Load
}

func TestParseScenario_Kinds(t *testing.T) {
	for text, want := range map[string]simulate.Rate{
		"constant: 3":                               simulate.ConstantRate{Rate: 3},
		"ramp: {from: 1, to: 2, for: 3s}":           simulate.Ramp{From: 1, To: 2, For: 3 * time.Second},
		"sine: {mean: 2, amplitude: 1, period: 1s}": simulate.Sine{Mean: 2, Amplitude: 1, Period: time.Second},
		"bursts: {size: 5, every: 1s}":              simulate.Bursts{Size: 5, Every: time.Second},
		"sum: [{constant: 3}, {bursts: {size: 5}}]": simulate.Sum{simulate.ConstantRate{Rate: 3}, simulate.Bursts{Size: 5}},
	} {
		assert.Equal(t, want, load(t, "open: {rate: {"+text+"}}").Open.Rate)
	}
	for text, want := range map[string]simulate.Durations{
		"fixed: 0s":                         simulate.Fixed{},
		"fixed: 5s":                         simulate.Fixed{Time: 5 * time.Second},
		"exponential: {mean: 1s}":           simulate.Exponential{Mean: time.Second},
		"uniform: {min: 1s, max: 2s}":       simulate.Uniform{Min: time.Second, Max: 2 * time.Second},
		"log_normal: {median: 1s, p99: 2s}": simulate.LogNormal{Median: time.Second, P99: 2 * time.Second},
	} {
		assert.Equal(t, want, load(t, "closed: {clients: 1, think: {"+text+"}}").Closed.Think)
	}
	for text, want := range map[string]simulate.Keys{
		"uniform: {count: 5}":             simulate.UniformKeys{Count: 5},
		"zipf: {count: 5, exponent: 1}":   simulate.ZipfKeys{Count: 5, Exponent: 1},
		"abuser: {share: 0.5, others: 9}": simulate.AbuserKeys{Share: 0.5, Others: 9},
	} {
		assert.Equal(t, want, load(t, "keys: {"+text+"}").Keys)
	}
	for text, want := range map[string]simulate.Costs{
		"fixed: 0":                         simulate.FixedCost{},
		"uniform: {min: 1, max: 5}":        simulate.UniformCost{Min: 1, Max: 5},
		"mixed: [{permits: 1, weight: 9}]": simulate.MixedCost{Shares: []simulate.CostShare{{Permits: 1, Weight: 9}}},
	} {
		assert.Equal(t, want, load(t, "cost: {"+text+"}").Cost)
	}
	none, err := simulate.ParseScenario("x.yaml", []byte("service: {queue_limit: off}\n$schema: x"))
	require.NoError(t, err)
	assert.Equal(t, simulate.Scenario{Service: simulate.Service{QueueLimit: -1}}, none)
	fails, err := simulate.ParseScenario("x.yaml", []byte("service: {periods: [{to: 1m}, {to: 1m, failure_rate: 0}]}"))
	require.NoError(t, err)
	assert.Equal(t, []simulate.Period{{To: time.Minute}, {To: time.Minute, FailureRate: new(0.0)}}, fails.Service.Periods)
}

func TestParseScenario_Invalid(t *testing.T) {
	for text, want := range map[string]string{
		"load: {for: 10m, open: {rate: {}}}":                                            "x.yaml:1:31: load.open.rate: the kind of rate is missing, it is one of bursts, constant, ramp, sine, steps, sum",
		"load: {open: {rate: {constant: 0}}}":                                           "x.yaml:1:32: load.open.rate.constant: constant must be more than 0 and at most 1e9, got 0",
		"load: {open: {rate: {constant: 1, ramp: {}}}}":                                 "x.yaml:1:35: load.open.rate: a rate has one kind, found \"ramp\" after \"constant\"",
		"load: {open: {rate: {steps: [{rate: 1}, {rate: 2}]}}}":                         "x.yaml:1:30: load.open.rate.steps[0]: for must be more than 0; only the last step can be without an end",
		"load: {open: {rate: {steps: [{rate: 1, ramp: 2s, for: 1s}]}}}":                 "load.open.rate.steps[0].ramp: ramp must be at least 0 and at most for, which is 1s, got 2s",
		"load: {open: {rate: {steps: []}}}":                                             "must have at least one step",
		"load: {open: {rate: {sum: []}}}":                                               "must have at least one rate",
		"load: {open: {rate: {sum: [{constant: -1}]}}}":                                 "x.yaml:1:39: load.open.rate.sum[0].constant: constant must be more than 0",
		"load: {open: {rate: {constant: 1}}, closed: {clients: 1, think: {fixed: 1s}}}": "must have only one of open and closed",
		"load: {cost: {mixed: [{permits: 1, weight: 0}]}}":                              "load.cost.mixed[0].weight: weight must be more than 0",
		"load: {keys: {zipf: {count: 0, exponent: 1}}}":                                 "load.keys.zipf.count: count must be at least 1",
		"load: {closed: {clients: 0, think: {fixed: 1s}}}":                              "load.closed.clients: must be at least 1",
		"service: {failure_rate: 1.5}":                                                  "service.failure_rate: must be at most 1",
		"service: {periods: [{to: 1m, failure_rate: 1.5}]}":                             "service.periods[0].failure_rate: must be at most 1",
		"service: {queue_limit: 0}":                                                     "service.queue_limit: must be at least 1, found 0",
		"service: {periods: [{from: 5m, to: 3m}]}":                                      "service.periods[0].to: to must be more than from, which is 5m0s",
		"service: {latency: {fixed: -1s}}":                                              "service.latency.fixed: fixed must be at least 0",
		"clients: {on_rejection: {backoff: cubic}}":                                     `must be "constant", "linear" or "exponential"`,
		"clients: {on_rejection: {delay: -1s}}":                                         "clients.on_rejection.delay: delay must be at least 0",
		"clients: {timeout: -1s}":                                                       "clients.timeout: timeout must be at least 0",
		"pipelines: {}":                                                                 `x.yaml:1:1: unknown field "pipelines", there are clients, load, service`,
		"limiters: {a: {unlimited: {}}}":                                                `unknown field "limiters"`,
		"[]":                                                                            "a file must be a mapping, found a list",
	} {
		_, err := simulate.ParseScenario("x.yaml", []byte(text))
		assert.ErrorContains(t, err, want, text)
		assert.ErrorAs(t, err, new(*reload.FileError))
	}
}

func TestScenarioSchema(t *testing.T) {
	text, err := simulate.ScenarioSchema()
	require.NoError(t, err)
	var schema struct {
		Properties map[string]any
		Defs       map[string]any `json:"$defs"`
		AnyOf      any
	}
	require.NoError(t, json.Unmarshal(text, &schema))
	assert.Len(t, schema.Properties, 4, "three sections and $schema")
	assert.Len(t, schema.Defs, 4, "three sections and durations")
	assert.Nil(t, schema.AnyOf)
}
