// The program simulates a fixed window, outside of any test.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weir-go/weir/simulate"
)

const file = `pipelines: {p: {strategies: [{rate_limiter: {fixed_window: {permit_limit: 30, window: 1s}}}]}}`

func main() {
	r, err := simulate.Run(context.Background(), simulate.Scenario{
		Config: simulate.File("weir.yaml", []byte(file), nil),
		Load:   simulate.Load{For: 10 * time.Second, Open: &simulate.Open{Rate: simulate.ConstantRate{Rate: 100}}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("offered", r.Total.Offered, "admitted", r.Total.Admitted)
}
