// Package routers mounts the middleware of weirhttp on other routers than that of net/http.
// It has only tests, which show how that is done and check that it works.
package routers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hello is the handler of every route.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

// newLimits returns limits with the policies "one" and "two", for one and two requests an
// hour, and "per-route", for one request an hour with each key. global is the limit for all
// requests.
func newLimits(t *testing.T, global int, route weirhttp.Key) *weirhttp.Limits {
	t.Helper()
	perRoute, err := weirhttp.PerKey(limiter.FactoryFor[string](anHour(1)), &limiter.PartitionedOptions{MaxPartitions: 100})
	require.NoError(t, err)
	t.Cleanup(func() { _ = perRoute.Close() })
	l, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Global: weirhttp.Policy{Limit: weirhttp.Of(bucket(t, global))},
		Policies: map[string]weirhttp.Policy{
			"one":       {Limit: weirhttp.Of(bucket(t, 1))},
			"two":       {Limit: weirhttp.Of(bucket(t, 2))},
			"per-route": {Limit: weirhttp.ByKey(perRoute, route)},
		},
	})
	require.NoError(t, err)
	return l
}

func anHour(n int) limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{TokenLimit: n, TokensPerPeriod: n, ReplenishmentPeriod: time.Hour}
}

func bucket(t *testing.T, n int) *limiter.TokenBucket {
	t.Helper()
	b, err := limiter.NewTokenBucket(anHour(n))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// expect sends a GET for each status that is expected.
func expect(t *testing.T, h http.Handler, path string, statuses ...int) {
	t.Helper()
	for i, want := range statuses {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, want, w.Code, "GET %s, request %d", path, i+1)
		assert.Equal(t, w.Code == http.StatusTooManyRequests, w.Header().Get("Retry-After") != "", "GET %s, request %d", path, i+1)
	}
}

// A recorder keeps the route and the status of each request.
type recorder []string

func (r *recorder) RecordRequest(_ context.Context, method, _, route string, status int, _ string, _ time.Duration) {
	*r = append(*r, fmt.Sprintf("%s %q %d", method, route, status))
}

// expectMeasured sends a GET to each path and compares what was recorded.
func expectMeasured(t *testing.T, h http.Handler, r *recorder, want map[string]string) {
	t.Helper()
	for path, recorded := range want {
		*r = nil
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, recorder{recorded}, *r, "GET %s", path)
	}
}
