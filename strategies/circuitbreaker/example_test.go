package circuitbreaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

func Example() {
	p := weir.Must(pipeline.New("orders", circuitbreaker.New(&circuitbreaker.Options{
		FailureRatio:      0.5,
		MinimumThroughput: 4,
		BreakDuration:     time.Minute,
	})))
	call := func(context.Context) error { return errors.New("unavailable") }
	for range 5 {
		err := p.Execute(context.Background(), call)
		if after, ok := pipeline.RetryAfter(err); ok {
			fmt.Println("not called, again in", after.Round(time.Minute))
			continue
		}
		fmt.Println(err)
	}
	// Output:
	// unavailable
	// unavailable
	// unavailable
	// unavailable
	// not called, again in 1m0s
}

func ExampleOptions_consecutiveFailures() {
	breaker := circuitbreaker.New(&circuitbreaker.Options{
		FailureRatio:        -1, // this rule is off
		ConsecutiveFailures: 3,
		BreakDuration:       time.Millisecond,
		OnOpened: func(_ context.Context, t circuitbreaker.Transition) {
			fmt.Printf("%v after %d failures: %v\n", t.To, t.ConsecutiveFailures, t.Err)
		},
		OnClosed: func(context.Context, circuitbreaker.Transition) { fmt.Println("closed again") },
	})
	p := weir.Must(pipeline.New("orders", breaker))
	for range 3 {
		_ = p.Execute(context.Background(), func(context.Context) error { return errors.New("unavailable") })
	}
	time.Sleep(time.Millisecond) // the break
	_ = p.Execute(context.Background(), func(context.Context) error { return nil })
	fmt.Println(breaker.State())
	// Output:
	// open after 3 failures: unavailable
	// closed again
	// closed
}

// Breaks that grow, and are never shorter than what the failure asks for.
func ExampleOptions_breakDurationFunc() {
	growing := func(_ context.Context, t circuitbreaker.Transition) time.Duration {
		asked, _ := pipeline.RetryAfter(t.Err)
		return max(asked, t.BreakDuration<<min(t.HalfOpenAttempts, 6))
	}
	breaker := circuitbreaker.New(&circuitbreaker.Options{
		ConsecutiveFailures: 1,
		BreakDuration:       time.Millisecond,
		BreakDurationFunc:   growing,
		OnOpened: func(_ context.Context, t circuitbreaker.Transition) {
			fmt.Println("open for", t.BreakDuration)
		},
	})
	p := weir.Must(pipeline.New("orders", breaker))
	for range 3 {
		_ = p.Execute(context.Background(), func(context.Context) error { return errors.New("unavailable") })
		time.Sleep(breaker.Statistics().RetryAfter)
	}
	// Output:
	// open for 1ms
	// open for 2ms
	// open for 4ms
}

func ExampleControl() {
	var maintenance circuitbreaker.Control
	options := &circuitbreaker.Options{Control: &maintenance}
	orders := weir.Must(pipeline.New("orders", circuitbreaker.New(options)))
	stock := weir.Must(pipeline.New("stock", circuitbreaker.New(options)))
	call := func(context.Context) error { return nil }

	maintenance.Isolate()
	fmt.Println(orders.Execute(context.Background(), call))
	fmt.Println(stock.Execute(context.Background(), call))
	maintenance.Reset()
	fmt.Println(orders.Execute(context.Background(), call))
	// Output:
	// circuitbreaker: orders/CircuitBreaker: the circuit is isolated
	// circuitbreaker: stock/CircuitBreaker: the circuit is isolated
	// <nil>
}
