package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
	"github.com/weir-go/weir/transport/weirhttp"
)

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
