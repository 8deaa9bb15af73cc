package simulate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

// bucket is a configuration with a token bucket of so many tokens, and as many a second.
func bucket(tokens int) simulate.Config {
	return func(*simulate.Setup) (registry.Change, error) {
		text := fmt.Sprintf("{pipelines: {api: {strategies: [{rate_limiter: {token_bucket: {token_limit: %d, tokens_per_period: %d, replenishment_period: 1s}}}]}}}", tokens, tokens)
		f, err := reload.Parse("weir.yaml", []byte(text), nil)
		if err != nil {
			return registry.Change{}, err
		}
		return f.Change(nil), nil
	}
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
	for _, text := range []string{"rejected < 1%", "latency_p99 <= 250ms", "most(1s) <= 100", "p99 < 100"} {
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
	// simulate: expectation "p99 < 100": there is no metric "p99": did you mean latency_p99 or wait_p99?
}
