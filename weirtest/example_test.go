package weirtest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
	"github.com/weir-go/weir/weirtest"
)

// The pipeline under test retries what the limiter rejects.
func Example() {
	busy := weirtest.NewLimiter(weirtest.Reject(0, "queue full"), weirtest.Grant())
	var events weirtest.Recorder
	p := weir.Must(pipeline.Config{
		Name: "orders",
		Strategies: []pipeline.Strategy{
			retry.New(&retry.Options{MaxRetries: 2, Delay: -1}),
			ratelimit.New(busy, nil),
		},
		Listener: &events,
	}.Build())

	err := p.Execute(context.Background(), func(context.Context) error { return nil })

	fmt.Println(err)
	for _, call := range busy.Calls() {
		fmt.Println(call.Permits, call.State)
	}
	fmt.Println(events.Count(ratelimit.EventRejected), events.Count(retry.EventRetry))
	// Output:
	// <nil>
	// 1 rejected
	// 1 released
	// 1 1
}

// The handler under test answers 503 when no report can be made now.
func ExampleLimiter_handler() {
	reports := weirtest.NewLimiter(weirtest.Grant(), weirtest.Reject(time.Minute, "queue full"))
	handler := func(w http.ResponseWriter, r *http.Request) {
		lease, err := reports.Acquire(r.Context(), 5)
		if err != nil || !lease.Acquired() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer lease.Release()
		fmt.Fprintln(w, "the report")
	}

	for range 2 {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest(http.MethodGet, "/reports", nil))
		fmt.Println(w.Code)
	}
	fmt.Println(reports.Count(weirtest.Held), "held")
	// Output:
	// 200
	// 503
	// 0 held
}

// The middleware under test reserves 100 tokens for a request, and the handler charges what it has used.
func ExampleLimiter_charge() {
	tokens := weirtest.NewLimiter(weirtest.Grant())
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Global: weirhttp.Policy{
			Limit:   weirhttp.Of(tokens),
			Cost:    func(*http.Request) int { return 100 },
			Metered: true,
		},
	}))
	handler := limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = weirhttp.Charge(r.Context(), 60) // 160 in all
	}))

	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/complete", nil))

	call := tokens.Calls()[0]
	fmt.Println("reserved", call.Permits, "charged", call.Charged)
	// Output: reserved 100 charged 160
}

// A limiter for each key has a script for each key.
func ExampleLimiter_perKey() {
	scripts := map[string]*weirtest.Limiter{
		"alice":   weirtest.NewLimiter(weirtest.Grant()),
		"mallory": weirtest.NewLimiter(weirtest.Reject(time.Hour, "blocked")),
	}
	perUser := weir.Must(limiter.NewPartitioned(func(user string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: user, New: func(key string) (limiter.Limiter, error) {
			return scripts[key], nil
		}}
	}, nil))
	defer perUser.Close()

	for _, user := range []string{"alice", "mallory"} {
		lease := weir.Must(perUser.TryAcquire(context.Background(), user, 1))
		fmt.Println(user, lease)
	}
	// Output:
	// alice granted 1 permit
	// mallory rejected: blocked, retry after 1h0m0s
}

// The first call waits until the test lets it go on.
func ExampleAnswer_When() {
	free := make(chan struct{})
	slots := weirtest.NewLimiter(weirtest.Grant().When(free))

	done := make(chan limiter.Lease)
	go func() { done <- weir.Must(slots.Acquire(context.Background(), 1)) }()
	close(free)
	lease := <-done

	fmt.Println(lease, slots.Calls()[0].State)
	// Output: granted 1 permit held
}

func ExampleRecorder() {
	var events weirtest.Recorder
	p := weir.Must(pipeline.Config{
		Name:       "orders",
		Strategies: []pipeline.Strategy{ratelimit.New(weirtest.NewLimiter(weirtest.Reject(time.Second, "busy")), nil)},
		Listener:   &events,
	}.Build())

	_ = p.Execute(context.Background(), func(context.Context) error { return nil })

	fmt.Println(events.Names())
	for _, e := range events.Events(ratelimit.EventRejected) {
		fmt.Println(e.Severity, e.Source, e.Err)
	}
	fmt.Println(events.Count(ratelimit.MeasureRequest), "measured")
	// Output:
	// [PipelineExecuting OnRateLimiterRejected PipelineExecuted]
	// Error orders/RateLimiter ratelimit: orders/RateLimiter: rejected: busy, retry after 1s
	// 1 measured
}
