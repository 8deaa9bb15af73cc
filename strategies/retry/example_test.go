package retry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
)

func Example() {
	p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{
		Backoff: retry.Exponential,
		Delay:   time.Millisecond,
		OnRetry: func(_ context.Context, r pipeline.Event) {
			fmt.Printf("attempt %d: %v, again in %v\n", r.Attempt, r.Err, r.Duration)
		},
	})))
	calls := 0
	err := p.Execute(context.Background(), func(context.Context) error {
		calls++
		if calls < 3 {
			return errors.New("unavailable")
		}
		return nil
	})
	fmt.Println("in the end:", err)
	// Output:
	// attempt 0: unavailable, again in 1ms
	// attempt 1: unavailable, again in 2ms
	// in the end: <nil>
}

func ExampleOptions_handle() {
	// Wait for a job to finish: a result to retry, and no error.
	p := weir.Must(pipeline.New("jobs", retry.New(&retry.Options{
		MaxRetries: retry.Forever,
		Delay:      time.Millisecond,
		Handle:     pipeline.HandleResult(func(state string, err error) bool { return err == nil && state == "running" }),
	})))
	states := []string{"running", "running", "done"}
	state, err := pipeline.ExecuteValue(context.Background(), p, func(context.Context) (string, error) {
		next := states[0]
		states = states[1:]
		return next, nil
	})
	fmt.Println(state, err)
	// Output: done <nil>
}
