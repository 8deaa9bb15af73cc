package weirhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

func looking(look func(r *http.Request)) pipeline.Strategy {
	return pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		look(weirhttp.RequestFrom(ctx))
		return next.Run(ctx)
	})
}

// Attempts at the same time get the same copy of the request. The caller changes the request when it has its answer,
// while attempts that were abandoned still look at it.
func TestRequestFrom_ConcurrentSafe(t *testing.T) {
	var mu sync.Mutex
	var seen []*http.Request
	look := looking(func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r)
		for range 100 {
			assert.Equal(t, "blue", r.Header.Get("X-Tenant"))
			assert.Equal(t, "/orders/7", r.URL.Path)
		}
	})
	base := plainBase(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("X-Tenant", "of the base") // it has its own copy
		return answering(200), nil
	})
	for range 50 {
		seen = nil
		hedge := &hedging{delay: time.Microsecond, attempts: 4}
		transport := roundTripper(t, base, nil, looking(func(*http.Request) {}), hedge, look)
		r := newRequest(t, http.MethodGet, url, "")
		r.Header.Set("X-Tenant", "blue")
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		_ = resp.Body.Close()
		r.Header.Set("X-Tenant", "red")
		r.URL.Path = "/others"
		hedge.losers.Wait()
		for _, s := range seen {
			assert.Same(t, seen[0], s)
			assert.NotSame(t, r, s)
		}
	}
}

// The copy has no body and no trailer, which the caller fills in while the body is sent.
func TestRequestFrom_OfATransport(t *testing.T) {
	type key struct{}
	r := newRequest(t, http.MethodPut, url, "seven apples")
	r = r.WithContext(context.WithValue(r.Context(), key{}, "of the caller"))
	r.Header.Set("X-Tenant", "blue")
	r.Trailer = http.Header{"X-Sum": nil}
	base := &fakeBase{answer: inTurn(503, 200)}
	var seen []*http.Request
	look := looking(func(r *http.Request) { seen = append(seen, r) })
	transport := roundTripper(t, base, nil, look, retrying(retry.Options{Delay: -1}), look)
	resp, err := transport.RoundTrip(r)
	require.NoError(t, err)
	_ = resp.Body.Close()

	require.Len(t, seen, 3, "before the retry, and for each attempt")
	assert.Same(t, seen[0], seen[1])
	assert.Same(t, seen[0], seen[2])
	assert.Equal(t, r.Header, seen[0].Header)
	assert.Equal(t, "of the caller", seen[0].Context().Value(key{}))
	assert.Nil(t, seen[0].Body)
	assert.Nil(t, seen[0].GetBody)
	assert.Nil(t, seen[0].Trailer)
	assert.Equal(t, []string{"seven apples", "seven apples"}, base.sent)
	assert.Same(t, seen[0], weirhttp.RequestFrom(base.requests[1].Context()), "in the base transport, too")
}

// A Transport in a handler gets the request that it sends.
func TestRequestFrom_TransportInAHandler(t *testing.T) {
	var sent, received *http.Request
	transport := roundTripper(t, &fakeBase{answer: inTurn(200)}, nil, looking(func(r *http.Request) { sent = r }))
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: weirhttp.Policy{Limit: weirhttp.Of(slots)}}))
	h := limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received = weirhttp.RequestFrom(r.Context())
		out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
		if !assert.NoError(t, err) {
			return
		}
		resp, err := transport.RoundTrip(out)
		if assert.NoError(t, err) {
			_ = resp.Body.Close()
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/incoming", nil))
	assert.Equal(t, "/incoming", received.URL.Path)
	assert.Equal(t, "/orders/7", sent.URL.Path)
}

// Strategies of Through find the request, and so does the handler, whether or not a strategy changes the context.
func TestRequestFrom_InThrough(t *testing.T) {
	for name, strategies := range map[string][]pipeline.Strategy{
		"the context of the pipeline": nil,
		"a context of a strategy":     {timeout.New(time.Minute, nil)},
	} {
		for _, body := range []string{"", "body"} {
			t.Run(name+" "+body, func(t *testing.T) {
				var seen *http.Request
				p := weir.Must(pipeline.New("orders", append(strategies, looking(func(r *http.Request) { seen = r }))...))
				var inHandler *http.Request
				mux := http.NewServeMux()
				mux.HandleFunc("/orders/{id}", func(_ http.ResponseWriter, r *http.Request) {
					inHandler = weirhttp.RequestFrom(r.Context())
				})
				var in io.Reader
				if body != "" {
					in = strings.NewReader(body)
				}
				r := httptest.NewRequest(http.MethodPost, "/orders/7", in)
				r.Header.Set("X-Tenant", "blue")
				weirhttp.Through(p, nil)(mux).ServeHTTP(httptest.NewRecorder(), r)
				assert.Equal(t, "blue", seen.Header.Get("X-Tenant"))
				assert.Same(t, seen, inHandler)
			})
		}
	}
}

// The innermost middleware decides which request it is.
func TestRequestFrom_LimitsInThrough(t *testing.T) {
	var paths []string
	look := looking(func(r *http.Request) { paths = append(paths, r.URL.Path) })
	p := weir.Must(pipeline.New("orders", look))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"orders": weirhttp.Policy{Limit: weirhttp.ByPipeline(p)}},
	}))
	h := weirhttp.Through(p, nil)(http.StripPrefix("/api", limits.Handler(served, "orders")))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/orders", nil))
	assert.Equal(t, []string{"/api/orders", "/orders"}, paths)
}

var served = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
