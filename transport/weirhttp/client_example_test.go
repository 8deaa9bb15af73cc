package weirhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// A client that sends at most 100 requests a second to each host, gives each attempt
// five seconds, and retries what failed and can be sent again.
func ExampleNewTransport() {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "seven apples")
	}))
	defer server.Close()

	bucket := limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: 100, TokensPerPeriod: 100, ReplenishmentPeriod: time.Second, QueueLimit: 100,
	})
	perHost, err := limiter.NewPartitioned(func(host string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: host, New: bucket}
	}, &limiter.PartitionedOptions{MaxPartitions: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perHost.Close()

	p := weir.Must(pipeline.New("orders-api",
		retry.New(&retry.Options{Delay: time.Millisecond}),
		ratelimit.NewPartitioned(perHost, weirhttp.HostFrom, nil),
		timeout.New(5*time.Second, nil),
	))
	client := &http.Client{Transport: weir.Must(weirhttp.NewTransport(p, nil))}
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL + "/orders/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(body), err)
	fmt.Println(requests.Load(), "requests")
	// Output:
	// 200 OK seven apples <nil>
	// 2 requests
}

// If a server asks one request to wait, all other requests to that host wait, too.
func ExampleGate() {
	gate := weir.Must(weirhttp.NewGate(nil))
	p := weir.Must(pipeline.New("api", gate))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("a request reaches the server")
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	client := &http.Client{Transport: weir.Must(weirhttp.NewTransport(p, nil))}
	defer client.CloseIdleConnections()

	for range 2 {
		resp, err := client.Get(server.URL)
		if err != nil {
			wait, _ := pipeline.RetryAfter(err)
			fmt.Println("held back for", wait.Round(time.Second))
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// a request reaches the server
	// 429 Too Many Requests
	// held back for 1m0s
}
