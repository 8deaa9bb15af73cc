package deploytest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/telemetry"
	"github.com/weir-go/weir/transport/weirhttp"
	"github.com/weir-go/weir/weirtest"
)

// troubled is the first argument by which this test binary becomes a process in which everything goes wrong that there is an alert
// for. Each scrape makes one more round of it, so that rates depend on nothing but the number of scrapes.
const troubled = "troubled"

var errBoom = errors.New("boom")

func succeed(context.Context) error { return nil }
func fail(context.Context) error    { return errBoom }

// serveTroubled serves /metrics at the address until it is killed.
func serveTroubled(address string) error {
	ctx := context.Background()
	metrics := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(metrics))
	if err != nil {
		return err
	}
	tel, err := telemetry.New(&telemetry.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
		LeaseDuration: true,
		MaxSeries:     100,
	})
	if err != nil {
		return err
	}
	round, err := trouble(ctx, tel)
	if err != nil {
		return err
	}
	round()
	for i := range 120 { // more than MaxSeries, now that all other series exist
		p := pipeline.Config{Name: "operations", Listener: tel}
		_ = weir.Must(p.Build()).Execute(pipeline.WithOperation(ctx, strconv.Itoa(i)), succeed)
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	var mu sync.Mutex
	handler := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		round()
		handler.ServeHTTP(w, r)
	})}
	return server.Serve(listener)
}

// trouble makes everything that happens once, and returns a function for what happens again and again.
func trouble(ctx context.Context, tel *telemetry.Telemetry) (round func(), err error) {
	tel.ConfigReloaded(time.Now(), nil)
	tel.ConfigReloaded(time.Now(), errBoom)
	if err := registryTrouble(ctx, tel); err != nil {
		return nil, err
	}
	stores, err := storeTrouble(ctx, tel)
	if err != nil {
		return nil, err
	}
	requests, err := requestTrouble(tel)
	if err != nil {
		return nil, err
	}
	strategies := strategyTrouble(ctx, tel)
	return func() {
		stores()
		requests()
		strategies()
	}, nil
}

// registryTrouble removes a pipeline that is in use, fails to dispose of a replaced version, fills the queue of a limiter for
// as long as the process lives, and overrides its limit. All but the queue happens once, before the first scrape.
func registryTrouble(ctx context.Context, tel *telemetry.Telemetry) error {
	r := registry.New(&registry.Options{Listener: tel, ObserveLimiter: tel.ObserveLimiter})
	if _, err := r.GetOrDefine("removed", func(*registry.Builder) error { return nil }); err != nil {
		return err
	}
	if err := r.Apply(ctx, registry.Change{Remove: []string{"removed"}}); err != nil {
		return err
	}
	if _, err := r.GetOrDefine("undisposed", func(b *registry.Builder) error {
		b.OnDispose(func() error { return errBoom })
		return nil
	}); err != nil {
		return err
	}
	if err := r.Reload(ctx, "undisposed"); err != nil {
		return err
	}
	stock, err := r.GetOrDefine("stock", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("stock", limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}), nil))
		return nil
	})
	if err != nil {
		return err
	}
	for range 2 { // one holds the permit, one waits for it
		go func() { _ = stock.Execute(ctx, func(context.Context) error { select {} }) }()
	}
	return r.Override(ctx, registry.Override{
		Limiter: "stock", Options: limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 2}, Until: time.Now().Add(time.Hour),
		By: "deploytest", Reason: "to see the alert",
	})
}

// storeTrouble has a store that is away, and one half of whose calls fail.
func storeTrouble(ctx context.Context, tel *telemetry.Telemetry) (round func(), err error) {
	open := func(name string, threshold int) (*storetest.Memory, *store.Limiter, error) {
		m := storetest.NewMemory()
		s, err := store.New(m, &store.Options{NoListen: true, FailureThreshold: threshold, OnEvent: tel.OnStoreEvent(name)})
		if err != nil {
			return nil, nil, err
		}
		tel.ObserveStore(name, s)
		w, err := s.FixedWindow("calls", limiter.FixedWindowOptions{PermitLimit: 1000, Window: time.Hour}, nil)
		return m, w, err
	}
	away, lost, err := open("away", 1)
	if err != nil {
		return nil, err
	}
	flaky, shaky, err := open("flaky", 1000)
	if err != nil {
		return nil, err
	}
	away.Fail(errBoom)
	return func() {
		_, _ = lost.TryAcquire(ctx, 1)
		flaky.Fail(errBoom)
		_, _ = shaky.TryAcquire(ctx, 1)
		flaky.Fail(nil)
		_, _ = shaky.TryAcquire(ctx, 1)
	}, nil
}

// requestTrouble sends a request to each of two routes whose limiter fails, and one to a route whose limit all clients share
// and that is exhausted.
func requestTrouble(tel *telemetry.Telemetry) (round func(), err error) {
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{Listener: tel, Policies: map[string]weirhttp.Policy{
		"closed": {Limit: weirhttp.Of(weirtest.NewLimiter(weirtest.Fail(errBoom)))},
		"open":   {Limit: weirhttp.Of(weirtest.NewLimiter(weirtest.Fail(errBoom))), FailOpen: true},
		"shared": {Limit: weirhttp.Of(weirtest.NewLimiter(weirtest.Reject(time.Second, "")))},
	}})
	if err != nil {
		return nil, err
	}
	return func() {
		for _, policy := range []string{"closed", "open", "shared"} {
			handler := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), policy)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
	}, nil
}

// strategyTrouble opens a circuit, and returns a round of retries, hedges, fallbacks, timeouts and exhausted budgets.
func strategyTrouble(ctx context.Context, tel *telemetry.Telemetry) (round func()) {
	build := func(name string, strategies ...pipeline.Strategy) *pipeline.Pipeline {
		return weir.Must(pipeline.Config{Name: name, Listener: tel, Strategies: strategies}.Build())
	}
	circuit := build("circuit", circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 1, BreakDuration: time.Hour}))
	_ = circuit.Execute(ctx, fail)

	nothing := weir.Must(budget.New(&budget.Options{Ratio: -1, MinPerSecond: -1}))
	failing := map[*pipeline.Pipeline]func(context.Context) error{
		circuit: succeed,
		build("retries", retry.New(&retry.Options{MaxRetries: 1, Delay: time.Microsecond})):                           fail,
		build("budget", retry.New(&retry.Options{Budget: nothing})):                                                   fail,
		build("fallback", fallback.New(fallback.Value[any](nil), nil)):                                                fail,
		build("hedge", hedge.New(&hedge.Options{DelayFunc: atOnce})):                                                  slowly,
		build("timeout", timeout.New(time.Millisecond, nil)):                                                          untilTheEnd,
		build("broken", ratelimit.New(weirtest.NewLimiter(weirtest.Fail(errBoom)), nil)):                              succeed,
		build("exhausted", ratelimit.New(weirtest.NewLimiter(weirtest.Reject(time.Second, "")), nil)):                 succeed,
		build("shadow", ratelimit.New(weirtest.NewLimiter(weirtest.Reject(0, "")), &ratelimit.Options{Shadow: true})): succeed,
	}
	return func() {
		for p, call := range failing {
			_ = p.Execute(ctx, call)
		}
	}
}

// untilTheEnd waits for the timeout.
func untilTheEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// atOnce is the delay of a hedge. One of a microsecond can be later than slowly on a machine that stands still.
func atOnce(context.Context, int) time.Duration { return 0 }

// slowly takes a while, so that there is an attempt to hedge.
func slowly(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Millisecond):
		return nil
	}
}
