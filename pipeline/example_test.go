package pipeline_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// A strategy of one's own: this one says what comes and goes.
type logging struct{ name string }

func (l logging) Name() string { return l.name }

func (l logging) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	fmt.Println("before, in", next.Source())
	value, err := next.Run(ctx)
	fmt.Println("after:", value, err)
	return value, err
}

func Example() {
	p, err := pipeline.New("orders", logging{"Logging"})
	if err != nil {
		panic(err)
	}
	defer p.Close()

	total, err := pipeline.ExecuteValue(context.Background(), p, func(context.Context) (int, error) {
		return 42, nil
	})
	fmt.Println("total:", total, err)
	// Output:
	// before, in orders/Logging
	// after: 42 <nil>
	// total: 42 <nil>
}

func ExampleConfig() {
	p := weir.Must(pipeline.Config{
		Name:     "orders",
		Instance: "eu-1",
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			fmt.Println(e.Severity, e.Name, e.Source, e.Operation)
		}),
	}.Build())

	ctx := pipeline.WithOperation(context.Background(), "list")
	_ = p.Execute(ctx, func(context.Context) error { return nil })
	// Output:
	// Debug PipelineExecuting orders/eu-1 list
	// Information PipelineExecuted orders/eu-1 list
}

func ExampleNew_problems() {
	_, err := pipeline.New("orders", nil, pipeline.Embed(nil))
	fmt.Println(err)
	// Output:
	// pipeline orders: Strategies[0] must not be nil; Strategies[1] must not be nil
}

func ExampleEmbed() {
	shared := weir.Must(pipeline.New("shared", logging{"Inner"}))
	orders := weir.Must(pipeline.New("orders", logging{"Outer"}, pipeline.Embed(shared)))
	_ = orders.Execute(context.Background(), func(context.Context) error { return nil })
	// Output:
	// before, in orders/Outer
	// before, in shared/Inner
	// after: <nil> <nil>
	// after: <nil> <nil>
}

func ExampleRetryAfter() {
	err := fmt.Errorf("calling the shop: %w", busyError{})
	fmt.Println(pipeline.RetryAfter(err))
	// Output: 2s true
}

// busyError says when it is worth trying again.
type busyError struct{}

func (busyError) Error() string                     { return "busy" }
func (busyError) RetryAfter() (time.Duration, bool) { return 2 * time.Second, true }
