package simulate_test

import (
	"fmt"

	"github.com/weir-go/weir/simulate"
)

func ExampleReadAccessLog() {
	yesterday, err := simulate.ReadAccessLog("internal/input/testdata/caddy.log", &simulate.RecordingOptions{Key: "request.headers.X-Api-Key"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(yesterday.Count, "requests in", yesterday.Length, "from", yesterday.Begin)
	// Output:
	// 3 requests in 1.5s from 2026-03-29 00:00:00.25 +0000 UTC
}

func ExampleReadCSV() {
	requests, err := simulate.ReadCSV("testdata/requests.csv", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(requests.Count, "requests in", requests.Length)
	// Output:
	// 2 requests in 1m30s
}
