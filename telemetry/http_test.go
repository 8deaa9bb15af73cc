package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
	"github.com/weir-go/weir/transport/weirhttp"
)

// The middleware reports the five instruments of ASP.NET's rate limiting, each policy under its own name, so that the
// waits of each can be seen.
func TestOnMeasurement_OfHTTPMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{LeaseDuration: true})
		slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
		quota := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}))
		defer l.ObserveLimiter("slots", slots)()
		limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
			Name:     "api",
			Global:   weirhttp.Policy{Limit: weirhttp.Of(slots)},
			Policies: map[string]weirhttp.Policy{"quota": {Limit: weirhttp.Of(quota)}},
			Listener: l,
		}))
		work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		h := limits.Handler(work, "quota")
		serve := func(ctx context.Context) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			return w.Code
		}
		at := func(policy, result string) map[string]any {
			a := map[string]any{"pipeline.name": "api", "strategy.name": policy}
			if result != "" {
				a["result"] = result
			}
			return a
		}

		second := make(chan int)
		gone, leave := context.WithCancel(t.Context())
		left := make(chan int)
		go func() { second <- serve(t.Context()) }()
		synctest.Wait()
		go func() { left <- serve(gone) }()
		synctest.Wait()
		metrics := collect(t, reader)
		assert.EqualValues(t, 1, metrics["weir.rate_limiter.lease.active"].at(t, at("quota", "")).value)
		assert.EqualValues(t, 1, metrics["weir.rate_limiter.queue.active"].at(t, map[string]any{"limiter.name": "slots"}).value)
		leave()
		assert.Equal(t, weirhttp.StatusClientClosedRequest, <-left)
		waited := make(chan int)
		go func() { waited <- serve(t.Context()) }()
		require.Equal(t, http.StatusOK, <-second)
		require.Equal(t, http.StatusOK, <-waited)
		require.Equal(t, http.StatusTooManyRequests, serve(t.Context()))

		metrics = collect(t, reader)
		requests, queued := metrics["weir.rate_limiter.requests"], metrics["weir.rate_limiter.queue.duration"]
		assert.EqualValues(t, 1, requests.at(t, at("global", "canceled")).value)
		assert.EqualValues(t, 3, requests.at(t, at("global", "acquired")).value)
		assert.EqualValues(t, 2, requests.at(t, at("quota", "acquired")).value)
		assert.EqualValues(t, 1, requests.at(t, at("quota", "rejected")).value)
		assert.EqualValues(t, 1, queued.at(t, at("global", "acquired")).count, "it waited for the slot, and not for the quota")
		for _, p := range queued.points {
			assert.NotEqual(t, "quota", p.attributes["strategy.name"])
		}
		assert.EqualValues(t, 2, metrics["weir.rate_limiter.lease.duration"].at(t, at("quota", "")).count)
		assert.Zero(t, metrics["weir.rate_limiter.lease.active"].at(t, at("global", "")).value)
	})
}

// What limits inside Through reject is no success of the pipeline. The share of successes comes out right by the
// metrics of the pipeline and by those of the requests.
func TestOnEvent_RejectionsInsideThrough(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	p := weir.Must(pipeline.Config{Name: "orders", Listener: l}.Build())
	quota := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}))
	defer quota.Close()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: weirhttp.Policy{Limit: weirhttp.Of(quota)}}))
	mux := http.NewServeMux()
	mux.Handle("/orders", weirhttp.Through(p, nil)(limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	mux.Handle("/broken", weirhttp.Through(p, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	})))
	h := weirhttp.Measure(l, nil)(mux)
	for range 5 {
		serve(h, "GET", "/orders")
	}
	serve(h, "GET", "/broken")

	metrics := collect(t, reader)
	executions := metrics["weir.pipeline.duration"]
	assert.EqualValues(t, 2, executions.at(t, map[string]any{"pipeline.name": "orders"}).count)
	assert.EqualValues(t, 3, executions.at(t, map[string]any{"pipeline.name": "orders", "error.type": "429"}).count)
	assert.EqualValues(t, 1, executions.at(t, map[string]any{"pipeline.name": "orders", "error.type": "502"}).count)
	requests := map[any]uint64{}
	for _, p := range metrics[requestDuration].points {
		requests[p.attributes["http.response.status_code"]] += p.count
	}
	assert.Equal(t, map[any]uint64{int64(200): 2, int64(429): 3, int64(502): 1}, requests)
}

func TestOnEvent_StatusOfATransport(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	p := weir.Must(pipeline.Config{Name: "api", Listener: l}.Build())
	statuses := []int{200, 429, 503, 503}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		status := statuses[0]
		statuses = statuses[1:]
		return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
	})
	transport := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base}))
	for len(statuses) > 0 {
		resp, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "http://host/", nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	executions := collect(t, reader)["weir.pipeline.duration"]
	assert.EqualValues(t, 1, executions.at(t, map[string]any{"pipeline.name": "api"}).count)
	assert.EqualValues(t, 1, executions.at(t, map[string]any{"pipeline.name": "api", "error.type": "429"}).count)
	assert.EqualValues(t, 2, executions.at(t, map[string]any{"pipeline.name": "api", "error.type": "503"}).count)
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
