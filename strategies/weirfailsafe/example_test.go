package weirfailsafe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

func Example() {
	breaker := circuitbreaker.NewBuilder[any]().WithFailureThreshold(2).WithDelay(time.Minute).Build()
	p := weir.Must(pipeline.New("orders", weirfailsafe.New(nil, breaker, bulkhead.New[any](10))))

	for range 3 {
		err := p.Execute(context.Background(), func(context.Context) error { return errors.New("unavailable") })
		fmt.Println(err, errors.Is(err, pipeline.ErrRejected))
	}
	// Output:
	// unavailable false
	// unavailable false
	// weirfailsafe: orders/Failsafe: rejected: circuit breaker open true
}

//nolint:bodyclose // policies and pipelines for responses, which are closed by those who get them
func ExampleFromLimiter() {
	bucket := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute,
	}))
	defer bucket.Close()

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	handler := failsafehttp.NewHandler(hello, weir.Must(weirfailsafe.FromLimiter[*http.Response](bucket, nil)))
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}
