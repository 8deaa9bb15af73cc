package weirhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// ask sends a request to h and prints what comes back.
func ask(h http.Handler, path, apiKey string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("X-Api-Key", apiKey)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(strings.TrimSpace(fmt.Sprint(path, " ", apiKey, " ", w.Code, " ", w.Result().Header.Get("Retry-After"))))
}

var ctx = context.Background()

var orders = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "orders") })

// At most 100 requests at a time, and two an hour for each user.
func Example_server() {
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 100}))
	perUser, err := weirhttp.PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: 2, TokensPerPeriod: 2, ReplenishmentPeriod: time.Hour,
	}), &limiter.PartitionedOptions{MaxPartitions: 100_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perUser.Close()

	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Global: weirhttp.Policy{Limit: weirhttp.Of(slots)},
		Policies: map[string]weirhttp.Policy{
			"per-user": {Limit: weirhttp.ByKey(perUser, weirhttp.Header("X-Api-Key"))},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/orders", limits.Handler(orders, "per-user"))
	mux.Handle("/healthz", orders)

	for range 3 {
		ask(mux, "/orders", "alice")
	}
	ask(mux, "/orders", "bob")
	ask(mux, "/healthz", "alice")
	// Output:
	// /orders alice 200
	// /orders alice 200
	// /orders alice 429 3600
	// /orders bob 200
	// /healthz alice 200
}

// The header fields RateLimit-Policy and RateLimit tell clients the limit and what is left of it, also when they are not rejected.
func ExampleLimitsOptions_headers() {
	perUser := weir.Must(weirhttp.PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{
		PermitLimit: 100, Window: time.Hour,
	}), &limiter.PartitionedOptions{MaxPartitions: 100_000}))
	defer perUser.Close()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"per-user": {Limit: weirhttp.ByKey(perUser, weirhttp.Header("X-Api-Key"))}},
		Headers:  weirhttp.Draft11,
	}))
	w := httptest.NewRecorder()
	limits.Handler(orders, "per-user").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/orders", nil))
	fmt.Println("RateLimit-Policy:", w.Header().Get("RateLimit-Policy"))
	left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // t is in how many seconds all permits are back, at most a window
	fmt.Println("RateLimit:", left)
	// Output:
	// RateLimit-Policy: "per-user";q=100;w=3600
	// RateLimit: "per-user";r=99
}

// A rejection can be answered, logged, or both.
func ExampleLimitsOptions_onRejected() {
	spent := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
	defer spent.Close()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"reports": {Limit: weirhttp.Of(spent)}},
		OnRejected: func(_ http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
			fmt.Println("rejected", r.URL.Path, "by", rejection.Policy)
		},
		Body: weirhttp.ProblemJSON,
	}))
	h := limits.Handler(orders, "reports")
	ask(h, "/reports", "alice")
	ask(h, "/reports", "alice")
	// Output:
	// /reports alice 200
	// rejected /reports by reports
	// /reports alice 429 3600
}

// The cost of a request is often known only after it is done.
func ExampleCharge() {
	tokens := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 1000, TokensPerPeriod: 1000, ReplenishmentPeriod: time.Minute,
	}))
	defer tokens.Close()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{
			"tokens": {Limit: weirhttp.Of(tokens), Metered: true, Cost: func(*http.Request) int { return 100 }},
		},
	}))
	completion := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		used := 350
		charged, err := weirhttp.Charge(r.Context(), used-100)
		fmt.Println("charged", charged, "more,", err)
	})
	ask(limits.Handler(completion, "tokens"), "/completions", "alice")
	fmt.Println(tokens.Statistics().AvailablePermits, "left")
	// Output:
	// charged 250 more, <nil>
	// /completions alice 200
	// 650 left
}

// A handler with a time limit, and the answer after it.
func ExampleThrough() {
	p := weir.Must(pipeline.New("orders", timeout.New(time.Millisecond, nil)))
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ask(weirhttp.Through(p, nil)(slow), "/orders", "alice")
	// Output: /orders alice 503
}

// An accessLog prints requests. A program usually has a *telemetry.Telemetry in its place.
type accessLog struct{}

func (accessLog) RecordRequest(_ context.Context, method, _, route string, status int, _ string, _ time.Duration) {
	fmt.Printf("%s %q %d\n", method, route, status)
}

func ExampleMeasure() {
	once := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
	defer once.Close()
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"once": {Limit: weirhttp.Of(once)}},
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limits.Handler(orders, "once"))
	h := weirhttp.Measure(accessLog{}, nil)(mux)
	for _, path := range []string{"/orders/1", "/orders/2", "/wp-login.php"} {
		ask(h, path, "alice")
	}
	// Output:
	// GET "/orders/{id}" 200
	// /orders/1 alice 200
	// GET "/orders/{id}" 429
	// /orders/2 alice 429 3600
	// GET "" 404
	// /wp-login.php alice 404
}

// A policy that is a pipeline of a registry; a reload changes it.
func ExampleByPipeline() {
	limit := 1
	r := registry.New(nil)
	perUser, err := r.GetOrDefine("per-user", func(b *registry.Builder) error {
		buckets := registry.Partitioned(b, "per-user", weirhttp.Header("X-Api-Key"), limiter.TokenBucketOptions{
			TokenLimit: limit, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
		}, &limiter.PartitionedOptions{MaxPartitions: 100_000})
		b.Add(ratelimit.NewPartitioned(buckets, weirhttp.RequestFrom, nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"per-user": weirhttp.Policy{Limit: weirhttp.ByPipeline(perUser)}},
	}))
	h := limits.Handler(orders, "per-user")
	ask(h, "/orders", "alice")
	ask(h, "/orders", "alice")
	limit = 2
	fmt.Println("reload:", r.Reload(ctx))
	ask(h, "/orders", "alice")
	fmt.Println("close:", r.Close(ctx))
	// Output:
	// /orders alice 200
	// /orders alice 429 3600
	// reload: <nil>
	// /orders alice 200
	// close: <nil>
}
