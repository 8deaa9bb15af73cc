package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// A tally is what a client has counted.
type tally struct {
	load
	user    user
	errs    []error
	refused atomic.Int64 // answers with 429
	retried atomic.Int64
	through atomic.Int64 // answers with 200
}

// newClient returns a client that waits for as long as the server asks for, and a jitter longer, so that
// requests with the same Retry-After do not come back at the same time.
func newClient(wire http.RoundTripper, t *tally, j *journal) (*http.Client, error) {
	p, err := pipeline.New(t.user.name,
		retry.New(&retry.Options{
			MaxRetries: 8,
			Backoff:    retry.Exponential,
			Delay:      50 * time.Millisecond,
			MaxDelay:   400 * time.Millisecond,
			Jitter:     true,
			OnRetry: func(ctx context.Context, a pipeline.Event) {
				t.retried.Add(1)
				e, ok := errors.AsType[*weirhttp.StatusError](a.Err)
				if !ok || e.Response.StatusCode != http.StatusTooManyRequests {
					j.line(t.user.name, "%s: %v", pipeline.Operation(ctx), a.Err)
					return
				}
				t.refused.Add(1)
				wait, _ := e.RetryAfter()
				j.line(t.user.name, "%s: %d, retry after %v", pipeline.Operation(ctx), e.Response.StatusCode, wait)
			},
		}),
		timeout.New(5*time.Second, nil), // of an attempt
	)
	if err != nil {
		return nil, err
	}
	transport, err := weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: wire})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// order asks for one order. The transport makes as many attempts as that takes.
func (t *tally) order(ctx context.Context, client *http.Client, url string, n int, j *journal) error {
	name := fmt.Sprintf("order %d", n)
	status, err := get(pipeline.WithOperation(ctx, name), client, fmt.Sprintf("%s/orders/%d", url, n), t.key)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s: %s: %d", t.user.name, name, status)
	}
	t.through.Add(1)
	j.line(t.user.name, "%s: %d", name, status)
	return nil
}

// get sends a request and returns the status of the answer.
func get(ctx context.Context, client *http.Client, url, key string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Api-Key", key)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
