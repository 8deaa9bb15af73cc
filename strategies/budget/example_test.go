package budget_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/retry"
)

// A server fails every call. Three retries each would be four times the load.
func Example() {
	extra := weir.Must(budget.New(&budget.Options{Ratio: 0.1, MinPerSecond: -1}))
	p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{Delay: -1, Budget: extra})))

	calls := 0
	var err error
	for range 1000 {
		err = p.Execute(context.Background(), func(context.Context) error {
			calls++
			return errors.New("overloaded")
		})
	}
	fmt.Println(calls, "calls")
	fmt.Println(err)
	fmt.Println(errors.Is(err, budget.ErrExhausted))
	// Output:
	// 1100 calls
	// overloaded; retry: gave up after attempt 2: budget: exhausted
	// true
}
