package simulate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/simulate"
)

// A fixed window of 100 a second lets through 200 in a second around the edge of two windows, if clients come back when
// they are told to.
func ExampleRun_doubleBurst() {
	file := []byte(`
pipelines:
  partner:
    strategies:
      - rate_limiter: {fixed_window: {permit_limit: 100, window: 1s}}
`)
	r, err := simulate.Run(context.Background(), simulate.Scenario{
		Config: simulate.File("weir.yaml", file, nil),
		Load: simulate.Load{
			For:  10 * time.Second,
			Open: &simulate.Open{Rate: simulate.Bursts{Size: 200, First: 4900 * time.Millisecond}},
		},
		Clients: simulate.Clients{OnRejection: simulate.Reaction{MaxRetries: 3, RetryAfter: true}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("requests:", r.Total.Requests, "satisfied:", r.Total.Satisfied)
	fmt.Println("rejected at first:", r.Total.Rejected, "by", r.Rejections)
	fmt.Println("most permits in a second:", r.Most[0].Permits)
	// Output:
	// requests: 200 satisfied: 200
	// rejected at first: 100 by map[partner/RateLimiter:100]
	// most permits in a second: 200
}
