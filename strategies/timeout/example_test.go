package timeout_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

func Example() {
	p := weir.Must(pipeline.New("orders", timeout.New(time.Millisecond, nil)))
	err := p.Execute(context.Background(), func(ctx context.Context) error {
		<-ctx.Done() // a call that takes too long
		return ctx.Err()
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, pipeline.ErrRejected), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// timeout: orders/Timeout: no result within 1ms
	// true false
}

func ExampleOptions() {
	slow := func(ctx context.Context) bool { return pipeline.Operation(ctx) == "report" }
	p := weir.Must(pipeline.New("orders", timeout.New(0, &timeout.Options{
		Func: func(ctx context.Context) time.Duration {
			if slow(ctx) {
				return 0 // as long as it takes
			}
			return time.Second
		},
	})))
	_ = p.Execute(pipeline.WithOperation(context.Background(), "report"), func(ctx context.Context) error {
		_, limited := ctx.Deadline()
		fmt.Println("limited:", limited)
		return nil
	})
	// Output: limited: false
}
