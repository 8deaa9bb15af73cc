package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/telemetry"
	"github.com/weir-go/weir/transport/weirhttp"
)

// withoutTime removes the time and the duration, which differ each time.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "duration" {
		return slog.Attr{}
	}
	return a
}

func Example() {
	t := weir.Must(telemetry.New(&telemetry.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	}))
	defer t.Close()

	p := weir.Must(pipeline.Config{
		Name:       "orders",
		Strategies: []pipeline.Strategy{retry.New(&retry.Options{MaxRetries: 1, Delay: time.Millisecond})},
		Listener:   t,
	}.Build())
	ctx := pipeline.WithOperation(context.Background(), "list")
	calls := 0
	_ = p.Execute(ctx, func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("unavailable")
		}
		return nil
	})
	// Output:
	// level=WARN msg="Resilience event occurred" event.name=OnRetry event.severity=Warning pipeline.name=orders strategy.name=Retry operation.key=list error.type=*errors.errorString result=unavailable
}

// The requests of a server by route and status.
func ExampleTelemetry_RecordRequest() {
	reader := sdkmetric.NewManualReader() // a program has one that exports
	t := weir.Must(telemetry.New(&telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}))
	defer t.Close()

	once := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
	defer once.Close()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"once": {Limit: weirhttp.Of(once)}},
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limits.Handler(http.NotFoundHandler(), "once"))
	h := weirhttp.Measure(t, nil)(mux)
	for _, path := range []string{"/orders/1", "/orders/2", "/orders/3", "/wp-login.php"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}

	var read metricdata.ResourceMetrics
	_ = reader.Collect(context.Background(), &read)
	var lines []string
	for _, m := range read.ScopeMetrics[0].Metrics {
		if requests, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, p := range requests.DataPoints {
				route, _ := p.Attributes.Value("http.route")
				status, _ := p.Attributes.Value("http.response.status_code")
				lines = append(lines, fmt.Sprintf("%s at %q with %d: %d", m.Name, route.AsString(), status.AsInt64(), p.Count))
			}
		}
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
	// Output:
	// http.server.request.duration at "" with 404: 1
	// http.server.request.duration at "/orders/{id}" with 404: 1
	// http.server.request.duration at "/orders/{id}" with 429: 2
}

func ExampleTelemetry_ObserveLimiter() {
	reader := sdkmetric.NewManualReader() // a program has one that exports
	t := weir.Must(telemetry.New(&telemetry.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}))
	defer t.Close()

	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3}))
	stop := t.ObserveLimiter("uploads", permits)
	print := func() {
		var read metricdata.ResourceMetrics
		_ = reader.Collect(context.Background(), &read)
		for _, scope := range read.ScopeMetrics {
			for _, m := range scope.Metrics {
				p := m.Data.(metricdata.Gauge[int64]).DataPoints[0]
				name, _ := p.Attributes.Value("limiter.name")
				fmt.Println(m.Name, name.AsString(), p.Value)
			}
		}
	}

	lease, _ := permits.TryAcquire(context.Background(), 1)
	print()
	lease.Release()
	stop()
	print() // nothing
	// Output:
	// weir.rate_limiter.permit.available uploads 2
	// weir.rate_limiter.queue.active uploads 0
}

func ExampleOptions_severityFunc() {
	t := weir.Must(telemetry.New(&telemetry.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime})),
		SeverityFunc: func(e pipeline.Event) pipeline.Severity {
			switch e.Name {
			case pipeline.EventPipelineExecuting:
				return pipeline.SeverityNone // no line
			case pipeline.EventPipelineExecuted:
				return pipeline.SeverityDebug
			default:
				return e.Severity
			}
		},
	}))
	defer t.Close()

	p := weir.Must(pipeline.Config{Name: "orders", Listener: t}.Build())
	_ = p.Execute(context.Background(), func(context.Context) error { return nil })
	// Output:
	// level=DEBUG msg="Resilience pipeline executed" event.name=PipelineExecuted event.severity=Debug pipeline.name=orders
}
