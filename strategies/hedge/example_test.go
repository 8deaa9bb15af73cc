package hedge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
)

func Example() {
	servers := []string{"slow", "fast"}
	p := weir.Must(pipeline.New("prices", hedge.New(&hedge.Options{
		Delay:   10 * time.Millisecond,
		OnHedge: func(_ context.Context, h pipeline.Event) { fmt.Println("attempt", h.Attempt) },
	})))
	price, err := pipeline.ExecuteValue(context.Background(), p, func(ctx context.Context) (string, error) {
		server := servers[hedge.AttemptNumber(ctx)]
		if server == "slow" {
			<-ctx.Done() // it would take a minute
			return "", ctx.Err()
		}
		return "12.50 from " + server, nil
	})
	fmt.Println(price, err)
	// Output:
	// attempt 1
	// 12.50 from fast <nil>
}

func ExampleDispose() {
	// A result that has to be closed, and comes from an attempt that was not good enough.
	p := weir.Must(pipeline.New("files", hedge.New(&hedge.Options{
		Delay: -1, // one after the other
		Dispose: hedge.Dispose(func(body io.ReadCloser) {
			fmt.Println("closed:", body.Close())
		}),
	})))
	body, err := pipeline.ExecuteValue(context.Background(), p, func(ctx context.Context) (io.ReadCloser, error) {
		if hedge.AttemptNumber(ctx) == 0 {
			return io.NopCloser(strings.NewReader("half")), errors.New("cut off")
		}
		return io.NopCloser(strings.NewReader("all of it")), nil
	})
	text, _ := io.ReadAll(body)
	fmt.Println(string(text), err)
	// Output:
	// closed: <nil>
	// all of it <nil>
}
