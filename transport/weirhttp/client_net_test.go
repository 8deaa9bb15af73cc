package weirhttp_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// counting counts the bodies of a real transport.
type counting struct {
	*http.Transport
	opened, closed atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.Body != http.NoBody {
		c.opened.Add(1)
		resp.Body = &countedOnce{ReadCloser: resp.Body, closed: &c.closed}
	}
	return resp, nil
}

type countedOnce struct {
	io.ReadCloser
	once   sync.Once
	closed *atomic.Int64
}

func (c *countedOnce) Close() error {
	c.once.Do(func() { c.closed.Add(1) })
	return c.ReadCloser.Close()
}

func serve(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *counting) {
	t.Helper()
	server := httptest.NewServer(handler)
	base := &counting{Transport: &http.Transport{}}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return server, base
}

// The connection of a failure is used by the next attempt.
func TestTransport_NetFailuresKeepTheirConnection(t *testing.T) {
	var requests atomic.Int64
	server, base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1)%4 != 0 {
			http.Error(w, strings.Repeat("busy ", 100), http.StatusServiceUnavailable)
		}
	})
	var connections atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !info.Reused {
			connections.Add(1)
		}
	}})
	client := &http.Client{Transport: roundTripper(t, base, nil, retrying(retry.Options{Delay: -1}), timeout.New(10*time.Second, nil))}
	for range 5 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, strings.NewReader("seven apples"))
		require.NoError(t, err)
		resp, err := client.Do(r)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		readAll(t, resp)
	}
	assert.EqualValues(t, 20, requests.Load())
	assert.EqualValues(t, 1, connections.Load())
	assert.Equal(t, base.opened.Load(), base.closed.Load())
}

// Failures, slow answers, hedges, timeouts, and callers that go away while they wait or read, all at the same time. In
// the end every body is closed.
func TestTransport_NetNoBodyIsLostConcurrentSafe(t *testing.T) {
	var requests atomic.Int64
	server, base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		switch n % 7 {
		case 0:
			http.Error(w, strings.Repeat("busy ", int(n%2)*2000), http.StatusServiceUnavailable)
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			select {
			case <-time.After(time.Duration(n%40) * time.Millisecond):
			case <-r.Context().Done():
			}
		case 3:
			panic(http.ErrAbortHandler)
		case 4:
			_, _ = io.WriteString(w, "a part")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(time.Duration(n%20) * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, strings.Repeat("answer ", int(n%3)*1000))
	})
	base.MaxIdleConnsPerHost = 16
	hedge := &hedging{delay: 3 * time.Millisecond, attempts: 3}
	client := &http.Client{Transport: roundTripper(t, base, nil,
		retrying(retry.Options{MaxRetries: 2, Delay: time.Millisecond, Jitter: true}), hedge, timeout.New(15*time.Millisecond, nil))}

	var callers sync.WaitGroup
	var answered atomic.Int64
	for range 8 {
		callers.Go(func() {
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(40)+1)*time.Millisecond)
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				if err != nil {
					t.Error(err)
				}
				if resp, err := client.Do(r); err == nil {
					answered.Add(1)
					_, _ = io.CopyN(io.Discard, resp.Body, rand.Int64N(10000))
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	callers.Wait()
	hedge.losers.Wait()
	assert.Positive(t, answered.Load())
	assert.Equal(t, base.opened.Load(), base.closed.Load())
	t.Logf("%d requests, %d answers, %d bodies", requests.Load(), answered.Load(), base.opened.Load())
}
