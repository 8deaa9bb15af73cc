package adaptive_test

import (
	"os"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/reload"
	_ "github.com/weir-go/weir/reload/adaptive"
)

// A program imports the package for its effect. Then its files can have limiters that learn.
func Example() {
	f := weir.Must(reload.Parse("limits.yaml", []byte(`
pipelines:
  orders:
    strategies:
      - rate_limiter:
          adaptive: {max_limit: 50, initial_limit: 10}
`), nil))
	_ = f.Explain(os.Stdout)
	// Output:
	// orders
	//   1. each execution: rate_limiter with limiter: its own adaptive limiter: 1 to 50 at once, 10 at first; no queue
}
