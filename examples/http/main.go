// Http runs a small API server with limits and a client that retries, and prints what happens.
//
//	go run ./examples/http
//
// The server works on four requests at a time, and others wait for up to a second. Each user may send three requests a second. Fay
// sends seven at once. Those above the limit get 429 with Retry-After; the client waits for that long and sends them again, until
// all have come through.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

const requests = 7

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	handler, err := newHandler()
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	j := &journal{out: out, began: time.Now()}
	client, err := newClient(j)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()

	errs := make([]error, requests)
	var all sync.WaitGroup
	for n := range requests {
		all.Go(func() { errs[n] = order(ctx, client, server.URL, n+1, j) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(out, "all %d requests came through\n", requests)
	return nil
}

// newHandler returns the server: a limit of each user on one route, inside a limit of the whole server.
func newHandler() (http.Handler, error) {
	slots, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 4, QueueLimit: 100})
	if err != nil {
		return nil, err
	}
	perUser, err := weirhttp.PerKey(limiter.FactoryFor[string](limiter.PerSecond(3, 3)), &limiter.PartitionedOptions{MaxPartitions: 10_000})
	if err != nil {
		return nil, err
	}
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Global:   weirhttp.Policy{Limit: weirhttp.Of(slots), MaxWait: time.Second},
		Policies: map[string]weirhttp.Policy{"per-user": {Limit: weirhttp.ByKey(perUser, weirhttp.Header("X-Api-Key"))}},
		Headers:  weirhttp.Draft11,
		Body:     weirhttp.ProblemJSON,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond) // the work
		fmt.Fprintf(w, "order %s\n", r.PathValue("id"))
	}), "per-user"))
	return mux, nil
}

// newClient returns a client that waits for as long as the server asks for, and a jitter longer, so that requests with the same
// Retry-After do not come back at the same time.
func newClient(j *journal) (*http.Client, error) {
	p, err := pipeline.New("orders",
		retry.New(&retry.Options{
			MaxRetries: 8, Backoff: retry.Exponential, Delay: 50 * time.Millisecond, MaxDelay: 400 * time.Millisecond, Jitter: true,
			OnRetry: func(ctx context.Context, e pipeline.Event) { j.line(pipeline.Operation(ctx), e.Err) },
		}),
		timeout.New(5*time.Second, nil), // of an attempt
	)
	if err != nil {
		return nil, err
	}
	transport, err := weirhttp.NewTransport(p, nil)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// order asks for one order. The transport makes as many attempts as that takes.
func order(ctx context.Context, client *http.Client, url string, n int, j *journal) error {
	name := fmt.Sprintf("order %d", n)
	r, err := http.NewRequestWithContext(pipeline.WithOperation(ctx, name), http.MethodGet, fmt.Sprintf("%s/orders/%d", url, n), nil)
	if err != nil {
		return err
	}
	r.Header.Set("X-Api-Key", "key-of-fay")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	j.line(name, resp.Status)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", name, resp.Status)
	}
	return nil
}

// A journal prints lines with the time since it began.
type journal struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func (j *journal) line(who string, what any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.out, "%6dms  %-8s %v\n", time.Since(j.began).Milliseconds(), who, what)
}
