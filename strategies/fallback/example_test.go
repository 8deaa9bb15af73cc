package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

func Example() {
	p := weir.Must(pipeline.New("prices",
		fallback.New(fallback.Value("about 10"), nil), // outermost
		retry.New(&retry.Options{Delay: time.Millisecond}),
	))
	calls := 0
	price, err := pipeline.ExecuteValue(context.Background(), p, func(context.Context) (string, error) {
		calls++
		return "", errors.New("the shop does not answer")
	})
	fmt.Println(price, err, "after", calls, "calls")
	// Output: about 10 <nil> after 4 calls
}

func ExampleFunc() {
	yesterday := map[string]float64{"tea": 9.5}

	// An action that can fail, and that says why it was needed when it does.
	cached := func(ctx context.Context, _ float64, err error) (float64, error) {
		price, ok := yesterday[pipeline.Operation(ctx)]
		if !ok {
			return 0, fmt.Errorf("no price of yesterday either: %w", err)
		}
		return price, nil
	}
	p := weir.Must(pipeline.New("prices", fallback.New(fallback.Func(cached), nil)))
	for _, what := range []string{"tea", "coffee"} {
		ctx := pipeline.WithOperation(context.Background(), what)
		fmt.Println(pipeline.ExecuteValue(ctx, p, func(context.Context) (float64, error) {
			return 0, errors.New("the shop does not answer")
		}))
	}
	// Output:
	// 9.5 <nil>
	// 0 no price of yesterday either: the shop does not answer
}

func ExampleOptions() {
	// Fall back only where weir has turned the execution away: a limiter, an open
	// circuit, or as here a timeout.
	p := weir.Must(pipeline.New("prices",
		fallback.New(fallback.Value("about 10"), &fallback.Options{
			Handle: func(_ any, err error) bool { return errors.Is(err, pipeline.ErrRejected) },
			OnFallback: func(_ context.Context, o pipeline.Event) {
				fmt.Println("falling back:", o.Err)
			},
		}),
		timeout.New(time.Millisecond, nil),
	))
	fmt.Println(pipeline.ExecuteValue(context.Background(), p, func(ctx context.Context) (string, error) {
		<-ctx.Done() // a call that takes too long
		return "", ctx.Err()
	}))
	fmt.Println(pipeline.ExecuteValue(context.Background(), p, func(context.Context) (string, error) {
		return "", errors.New("there is no such thing")
	}))
	// Output:
	// falling back: timeout: prices/Timeout: no result within 1ms
	// about 10 <nil>
	//  there is no such thing
}

func ExampleOptions_handle() {
	// A result that will not do, and no error.
	p := weir.Must(pipeline.New("offers", fallback.New(fallback.Value([]string{"the usual"}), &fallback.Options{
		Handle: pipeline.HandleResult(func(offers []string, err error) bool { return err != nil || len(offers) == 0 }),
	})))
	fmt.Println(pipeline.ExecuteValue(context.Background(), p, func(context.Context) ([]string, error) {
		return nil, nil
	}))
	// Output: [the usual] <nil>
}
