package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/retry"
)

func Example() {
	type user struct{}
	on := chaos.Options{
		Rate:        1, // so that the example always prints the same
		EnabledFunc: func(ctx context.Context) bool { return ctx.Value(user{}) == "tester" },
	}
	p := weir.Must(pipeline.New("orders",
		retry.New(&retry.Options{MaxRetries: 1, Delay: time.Millisecond}),
		chaos.NewLatency(&chaos.LatencyOptions{Options: on, Latency: time.Millisecond}),
		chaos.NewFault(&chaos.FaultOptions{Options: on, Err: errors.New("connection reset")}), // innermost
	))
	for _, name := range []string{"customer", "tester"} {
		ctx := context.WithValue(context.Background(), user{}, name)
		err := p.Execute(ctx, func(context.Context) error { return nil })
		fmt.Println(name+":", err)
	}
	// Output:
	// customer: <nil>
	// tester: connection reset
}

func ExampleFault() {
	p := weir.Must(pipeline.New("orders", chaos.NewFault(&chaos.FaultOptions{
		Options: chaos.Options{Enabled: true, Rate: 1},
		Err:     errors.New("no such host"),
	})))
	fmt.Println(p.Execute(context.Background(), func(context.Context) error { return nil }))
	// Output: no such host
}

func ExampleLatency() {
	p := weir.Must(pipeline.New("orders", chaos.NewLatency(&chaos.LatencyOptions{
		Options: chaos.Options{
			Enabled:    true,
			Rate:       1,
			OnInjected: func(_ context.Context, i pipeline.Event) { fmt.Println(i.Source, "waited", i.Duration) },
		},
		Latency: time.Millisecond,
	})))
	fmt.Println(p.Execute(context.Background(), func(context.Context) error { return nil }))
	// Output:
	// orders/Chaos.Latency waited 1ms
	// <nil>
}

func ExampleOutcome() {
	p := weir.Must(pipeline.New("offers", chaos.NewOutcome(&chaos.OutcomeOptions{
		Options: chaos.Options{Enabled: true, Rate: 1},
		Result:  chaos.Result{Value: []string{}}, // what callers do with no offers at all
	})))
	offers, err := pipeline.ExecuteValue(context.Background(), p, func(context.Context) ([]string, error) {
		return []string{"tea", "coffee"}, nil
	})
	fmt.Println(offers, err)
	// Output: [] <nil>
}

func ExampleBehavior() {
	cache := map[string]int{"tea": 9}
	p := weir.Must(pipeline.New("prices", chaos.NewBehavior(&chaos.BehaviorOptions{
		Options:  chaos.Options{Enabled: true, Rate: 1},
		Behavior: func(context.Context) error { clear(cache); return nil },
	})))
	_ = p.Execute(context.Background(), func(context.Context) error {
		_, cached := cache["tea"]
		fmt.Println("cached:", cached)
		return nil
	})
	// Output: cached: false
}
