package simulate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Pipelines that are Go code are defined as in a registry. With the error of the expectation a test fails: a limit that is
// the average rate refuses too many of the requests of independent users.
func ExampleRun() {
	result, err := simulate.Run(context.Background(), simulate.Scenario{
		Config: func(*simulate.Setup) (registry.Change, error) {
			return registry.Change{Define: map[string]registry.BuildFunc{
				"orders": func(b *registry.Builder) error {
					b.Add(ratelimit.New(b.TokenBucket("orders", limiter.PerSecond(100, 30)), nil))
					return nil
				},
			}}, nil
		},
		Load: simulate.Load{
			For:  10 * time.Minute,
			Open: &simulate.Open{Rate: simulate.ConstantRate{Rate: 100}, Poisson: true},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	few, err := simulate.ParseExpectation("rejected < 1%")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(few.Check(result))
	// Output:
	// expected rejected < 1%, but rejected is 1.841% (1,106 of 60,081)
}

// Clients wait for their answers, and the service has an outage of ten seconds. The circuit breaker of the pipeline spares
// it most calls.
func ExampleRun_outage() {
	const file = `
pipelines:
  orders:
    strategies:
      - circuit_breaker: {failure_ratio: 0.5, minimum_throughput: 20, sampling_duration: 5s, break_duration: 2s}
`
	result, err := simulate.Run(context.Background(), simulate.Scenario{
		Config: simulate.File("weir.yaml", []byte(file), nil),
		Load: simulate.Load{
			For:    time.Minute,
			Closed: &simulate.Closed{Clients: 20, Think: simulate.Exponential{Mean: 200 * time.Millisecond}},
		},
		Service: simulate.Service{
			Latency: simulate.LogNormal{Median: 20 * time.Millisecond, P99: 80 * time.Millisecond},
			Periods: []simulate.Period{{From: 20 * time.Second, To: 30 * time.Second, FailureRate: new(1.0)}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rejected:", result.Rejections)
	fmt.Println("failed:", result.Failures)
	// Output:
	// rejected: map[orders/CircuitBreaker:814]
	// failed: map[the service failed:194]
}

// The program registers a key function and a store. The simulation has a function of its own under the same name, and a
// store in memory. Within any second, more than the limit of a fixed window can pass.
func ExampleFile() {
	const file = `
limiters:
  per_user:
    partitioned: {key: user, each: {fixed_window: {permit_limit: 10, window: 1s}}}
    store: redis
pipelines:
  orders:
    strategies:
      - rate_limiter: {limiter: per_user}
`
	config := simulate.File("weir.yaml", []byte(file), func(_ *simulate.Setup, k *reload.Kinds) {
		k.RegisterKey("user", simulate.Key)
	})
	result, err := simulate.Run(context.Background(), simulate.Scenario{
		Config:    config,
		Instances: 2,
		Load: simulate.Load{
			For:  10 * time.Second,
			Open: &simulate.Open{Rate: simulate.ConstantRate{Rate: 100}},
			Keys: simulate.AbuserKeys{Share: 0.5, Others: 100},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("most of one key in a second:", result.Most[0].KeyPermits, "of", result.Most[0].Key)
	for _, sentence := range result.Assumed {
		fmt.Println(sentence)
	}
	// Output:
	// most of one key in a second: 15 of abuser
	// The limiter "per_user" is in the store "redis".
	// The store "redis" is simulated in memory, and a call of it takes about a millisecond.
}

// A file has the load, the service and the clients. The program adds the configuration.
func ExampleParseScenario() {
	const file = `
load:
  for: 1m
  open: {poisson: true, rate: {sum: [{constant: 50}, {bursts: {size: 100, every: 20s}}]}}
service:
  latency: {exponential: {mean: 20ms}}
  capacity: 16
clients:
  timeout: 2s
  on_rejection: {max_retries: 3, delay: 1s, backoff: exponential, jitter: true, retry_after: true}
`
	scenario, err := simulate.ParseScenario("load.yaml", []byte(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	scenario.Config = bucket(60)
	result, err := simulate.Run(context.Background(), scenario)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("requests:", result.Total.Requests, "satisfied:", result.Total.Satisfied)
	fmt.Println("executions:", result.Total.Offered, "rejected:", result.Total.Rejected)
	// Output:
	// requests: 3326 satisfied: 3289
	// executions: 4725 rejected: 1436
}

// bucket is a configuration with a token bucket of so many tokens, and as many a second.
func bucket(tokens int) simulate.Config {
	return simulate.File("weir.yaml", fmt.Appendf(nil, `
pipelines:
  api:
    strategies:
      - rate_limiter: {token_bucket: {token_limit: %d, tokens_per_period: %d, replenishment_period: 1s}}
`, tokens, tokens), nil)
}

// A lower limit is tried with the same requests, and an expectation says what must not happen.
func ExampleCompare() {
	scenario := simulate.Scenario{
		Config: bucket(100),
		Load:   simulate.Load{For: time.Minute, Open: &simulate.Open{Rate: simulate.Ramp{From: 10, To: 100, For: time.Minute}}},
	}
	before, err := simulate.Run(context.Background(), scenario)
	if err != nil {
		fmt.Println(err)
		return
	}
	scenario.Config = bucket(80)
	after, err := simulate.Run(context.Background(), scenario)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := simulate.Compare(before, after)
	fmt.Println("newly refused:", c.NewlyRefused, "of", before.Total.Requests)

	expectation, err := simulate.ParseExpectation("newly_refused < 1%")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(expectation.CheckComparison(c))
	// Output:
	// newly refused: 133 of 3300
	// expected newly_refused < 1%, but newly_refused is 4.03% (133 of 3,300)
}

func ExampleParseExpectation() {
	for _, text := range []string{"rejected < 1%", "latency_p99 <= 250ms", "most(1s) <= 100", "latency_p99 < 100"} {
		expectation, err := simulate.ParseExpectation(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(expectation)
	}
	// Output:
	// rejected < 1%
	// latency_p99 <= 250ms
	// most(1s) <= 100
	// simulate: expectation "latency_p99 < 100": latency_p99 is a duration: write a duration such as 250ms
}
