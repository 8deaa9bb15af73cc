package weirhttp_test

import (
	"context"
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

// A client that keeps to the limit that a server has for each tenant.
func ExampleRequestFrom() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "the orders of ", r.Header.Get("X-Tenant"))
	}))
	defer server.Close()

	perTenant, err := weirhttp.PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perTenant.Close()
	tenant := func(ctx context.Context) string { return weirhttp.RequestFrom(ctx).Header.Get("X-Tenant") }
	p := weir.Must(pipeline.New("orders-api", ratelimit.NewPartitioned(perTenant, tenant, nil)))
	client := &http.Client{Transport: weir.Must(weirhttp.NewTransport(p, nil))}
	defer client.CloseIdleConnections()

	for _, tenant := range []string{"blue", "blue", "red"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/orders", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("X-Tenant", tenant)
		resp, err := client.Do(r)
		if err != nil {
			wait, _ := pipeline.RetryAfter(err)
			fmt.Println(tenant, "can send the next request in", wait.Round(time.Minute))
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(string(body), err)
	}
	// Output:
	// the orders of blue <nil>
	// blue can send the next request in 1h0m0s
	// the orders of red <nil>
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
