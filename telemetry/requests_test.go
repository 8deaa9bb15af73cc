package telemetry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/telemetry"
	"github.com/weir-go/weir/transport/weirhttp"
)

var _ weirhttp.RequestRecorder = (*telemetry.Telemetry)(nil)

const (
	requestDuration = "http.server.request.duration"
	requestLongest  = "weir.http.server.request.max_duration"
)

// measuredServer has a route for each kind of answer.
func measuredServer(t *testing.T, rec weirhttp.RequestRecorder) http.Handler {
	t.Helper()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"none": {Limit: weirhttp.Of(rejecting{})}},
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })
	mux.Handle("/limited", limits.Handler(http.NotFoundHandler(), "none"))
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	return weirhttp.Measure(rec, nil)(mux)
}

// A rejecting limiter rejects everything.
type rejecting struct{}

func (rejecting) Acquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(time.Second, ""), nil
}

func (rejecting) TryAcquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(time.Second, ""), nil
}

func serve(h http.Handler, method, path string) {
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
}

func TestRecordRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{})
		h := measuredServer(t, l)
		for range 2 {
			serve(h, "GET", "/orders/7")
		}
		for _, path := range []string{"/limited", "/broken", "/nothing"} {
			serve(h, "GET", path)
		}
		metrics := collect(t, reader)
		durations, longest := metrics[requestDuration], metrics[requestLongest]
		assert.Equal(t, "s", durations.unit)
		assert.Len(t, durations.points, 4)
		assert.Len(t, longest.points, 4)
		found := map[string]any{
			"http.request.method": "GET", "url.scheme": "http", "http.route": "/orders/{id}", "http.response.status_code": int64(200),
		}
		assert.EqualValues(t, 2, durations.at(t, found).count)
		assert.EqualValues(t, 6, durations.at(t, found).value)
		assert.EqualValues(t, 3, longest.at(t, found).value)
		durations.at(t, map[string]any{
			"http.request.method": "GET", "url.scheme": "http", "http.route": "/limited", "http.response.status_code": int64(429),
		})
		durations.at(t, map[string]any{
			"http.request.method": "GET", "url.scheme": "http", "http.route": "/broken", "http.response.status_code": int64(502), "error.type": "502",
		})
		durations.at(t, map[string]any{
			"http.request.method": "GET", "url.scheme": "http", "http.response.status_code": int64(404),
		})

		time.Sleep(90 * time.Second)
		metrics = collect(t, reader)
		assert.EqualValues(t, 2, metrics[requestDuration].at(t, found).count)
		assert.Zero(t, metrics[requestLongest].at(t, found).value)
	})
}

func TestRecordRequest_MaxSeries(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 10})
	for n := range 100 {
		l.RecordRequest(t.Context(), "GET", "http", fmt.Sprint("/", n), 200, "", time.Second)
	}
	l.RecordRequest(t.Context(), "GET", "http", "/7", 200, "", time.Second)
	for status := range 1000 {
		l.RecordRequest(t.Context(), "GET", "http", "/beyond", status, "", 2*time.Second)
	}
	l.RecordRequest(t.Context(), "GET", "http", "/beyond", -1, "aborted", 2*time.Second)
	metrics := collect(t, reader)
	for _, name := range []string{requestDuration, requestLongest} {
		assert.Len(t, metrics[name].points, 16, name)
	}
	for class, want := range map[int]uint64{0: 101, 1: 100, 2: 190, 3: 100, 4: 100, 5: 500} {
		overflow := map[string]any{"otel.metric.overflow": true, "http.response.status_code": int64(100 * class)}
		if class == 0 {
			overflow = map[string]any{"otel.metric.overflow": true, "error.type": "_OTHER"}
		}
		assert.Equal(t, want, metrics[requestDuration].at(t, overflow).count, class)
		assert.EqualValues(t, 2, metrics[requestLongest].at(t, overflow).value, class)
	}
}

func TestRecordRequest_Allocations(t *testing.T) {
	l, _ := started(t, telemetry.Options{MaxSeries: 1})
	for _, route := range []string{"/orders/{id}", "/beyond/the/bound"} {
		record := func() { l.RecordRequest(t.Context(), "GET", "http", route, 200, "", time.Second) }
		record()
		assert.Zero(t, testing.AllocsPerRun(100, record), route)
	}
}

// The longest wait is that of each result. A request that is answered at once counts as no wait.
func TestOnMeasurement_LongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{MaxSeries: 3})
		at := func(pipelineName, result string) map[string]any {
			return map[string]any{"pipeline.name": pipelineName, "result": result}
		}
		measure := func(pipelineName string, waited time.Duration, err error) {
			e := pipeline.Event{Name: "RateLimiterRequest", Source: pipeline.Source{Pipeline: pipelineName}, Duration: waited, Err: err}
			l.Hooks().OnMeasurement(t.Context(), e)
		}
		longest := func() instrument { return collect(t, reader)["weir.rate_limiter.queue.max_duration"] }
		measure("orders", time.Microsecond, nil)
		assert.Zero(t, longest().at(t, at("orders", "acquired")).value)
		measure("orders", 2*time.Second, nil)
		measure("orders", time.Second, nil)
		measure("orders", 5*time.Second, pipeline.ErrRejected)
		time.Sleep(time.Minute)
		measure("jobs", time.Second, nil)
		measure("beyond", 7*time.Second, nil)
		for range 2 {
			assert.EqualValues(t, 2, longest().at(t, at("orders", "acquired")).value)
			assert.EqualValues(t, 5, longest().at(t, at("orders", "rejected")).value)
			assert.EqualValues(t, 1, longest().at(t, at("jobs", "acquired")).value)
			overflow := map[string]any{"otel.metric.overflow": true, "pipeline.name": "_OTHER", "result": "acquired"}
			assert.EqualValues(t, 7, longest().at(t, overflow).value)
		}
		time.Sleep(30 * time.Second)
		assert.Zero(t, longest().at(t, at("orders", "acquired")).value)
		assert.EqualValues(t, 1, longest().at(t, at("jobs", "acquired")).value)
		l.Hooks().Forget(pipeline.Source{Pipeline: "orders"})
		for _, p := range longest().points {
			assert.NotEqual(t, "orders", p.attributes["pipeline.name"])
		}
	})
}
