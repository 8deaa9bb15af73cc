package adaptive_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
)

func Example() {
	l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1, MaxLimit: 500}))
	defer l.Close()
	p := weir.Must(pipeline.New("orders", adaptive.New(l, nil)))

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
	// ratelimit: orders/AdaptiveLimiter: rejected: no permit free
	// true
}

func ExampleThrottler() {
	th := weir.Must(adaptive.NewThrottler(nil))
	p := weir.Must(pipeline.New("orders", adaptive.New(th, nil)))
	calls, rejected := 0, 0
	for range 1000 {
		err := p.Execute(context.Background(), func(context.Context) error {
			calls++
			return errors.New("503 Service Unavailable")
		})
		if errors.Is(err, pipeline.ErrRejected) {
			rejected++
		}
	}
	fmt.Println("most never reached the server:", rejected > 700 && calls+rejected == 1000)
	fmt.Printf("%.1f\n", th.RejectionRate())
	// Output:
	// most never reached the server: true
	// 0.9
}

func ExampleFail() {
	l := weir.Must(adaptive.NewLimiter(nil))
	defer l.Close()

	work := func(ctx context.Context) error {
		lease, err := l.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer lease.Release() // a success, unless it was something else before
		if !lease.Acquired() {
			return errors.New("too busy")
		}
		if err := ctx.Err(); err != nil {
			adaptive.Ignore(lease)
			return err
		}
		if err := call(ctx); err != nil {
			adaptive.Fail(lease)
			return err
		}
		return nil
	}
	fmt.Println(work(context.Background()))
	fmt.Println(l.Statistics().AvailablePermits)
	// Output:
	// connection reset
	// 20
}

func call(context.Context) error { return errors.New("connection reset") }
