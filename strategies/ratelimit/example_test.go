package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func Example() {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	defer l.Close()
	p := weir.Must(pipeline.New("orders", ratelimit.New(l, nil)))

	err := p.Execute(context.Background(), func(ctx context.Context) error {
		fmt.Println("the first one runs")
		return p.Execute(ctx, func(context.Context) error {
			fmt.Println("a second one at the same time does not")
			return nil
		})
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, pipeline.ErrRejected))
	// Output:
	// the first one runs
	// ratelimit: orders/RateLimiter: rejected: no permit free
	// true
}

func ExampleOptions_shadow() {
	var busy refusing
	p := weir.Must(pipeline.Config{
		Name:       "orders",
		Strategies: []pipeline.Strategy{ratelimit.New(busy, &ratelimit.Options{Shadow: true})},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Name == ratelimit.EventShadowRejected {
				fmt.Println(e.Severity, e.Err)
			}
		}),
	}.Build())
	err := p.Execute(context.Background(), func(context.Context) error {
		fmt.Println("it runs all the same")
		return nil
	})
	fmt.Println(err)
	// Output:
	// Warning ratelimit: orders/RateLimiter: rejected: too hot, retry after 1m0s
	// it runs all the same
	// <nil>
}

// refusing is a limiter of one's own: anything with these two methods is one.
type refusing struct{}

func (r refusing) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.Acquire(ctx, n)
}

func (refusing) Acquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(time.Minute, "too hot"), nil
}
