package simulate_test

import (
	"fmt"

	"github.com/weir-go/weir/simulate"
)

// The second line has no API key, so its key is empty, and it is later than the third.
func ExampleReadAccessLog() {
	yesterday, err := simulate.ReadAccessLog("testdata/caddy.log", &simulate.RecordingOptions{Key: "request.headers.X-Api-Key"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(yesterday.Count, "requests in", yesterday.Length, "from", yesterday.Begin)
	for q, err := range yesterday.All() {
		fmt.Printf("%v %q %v\n", q.At, q.Key, err)
	}
	// Output:
	// 3 requests in 1.5s from 2026-03-29 00:00:00.25 +0000 UTC
	// 0s "alice" <nil>
	// 1.25s "alice" <nil>
	// 1.5s "" <nil>
}

func ExampleReadCSV() {
	requests, err := simulate.ReadCSV("testdata/requests.csv", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for q := range requests.All() {
		fmt.Printf("%v %q %d\n", q.At, q.Key, q.Cost)
	}
	// Output:
	// 500ms "alice" 1
	// 1m30s "bob; the \"second\"" 1
}
