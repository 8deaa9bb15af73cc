package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	weir "github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirhttp"
)

// A middleware is a way to limit each client's address before a handler.
type middleware struct {
	name string
	wrap func(b *testing.B, h http.Handler) http.Handler
}

var middlewares = []middleware{
	{"bare", func(_ *testing.B, h http.Handler) http.Handler { return h }},
	{"weir", func(b *testing.B, h http.Handler) http.Handler {
		perAddress, err := weirhttp.PerKey(weir.FactoryFor[string](weir.TokenBucketOptions{
			TokenLimit: plenty, TokensPerPeriod: plenty, ReplenishmentPeriod: time.Minute,
		}), nil)
		check(b, err)
		b.Cleanup(func() { check(b, perAddress.Close()) })
		limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{Policies: map[string]weirhttp.Policy{"per-address": {Limit: weirhttp.ByKey(perAddress, nil)}}})
		check(b, err)
		return limits.Handler(h, "per-address")
	}},
	{"httprate", func(_ *testing.B, h http.Handler) http.Handler {
		return httprate.LimitBy(plenty, time.Minute, httprate.KeyByIP)(h) //nolint:staticcheck // deprecated because of proxies; here is none
	}},
	{"throttled", func(b *testing.B, h http.Handler) http.Handler {
		store, err := memstore.NewCtx(1 << 16)
		check(b, err)
		rate, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1 << 20), MaxBurst: 1 << 20})
		check(b, err)
		limit := throttled.HTTPRateLimiterCtx{RateLimiter: rate, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
		return limit.RateLimit(h)
	}},
	{"ulule", func(_ *testing.B, h http.Handler) http.Handler {
		rate := limiter.Rate{Period: time.Minute, Limit: plenty}
		return ulule.NewMiddleware(limiter.New(memory.NewStore(), rate)).Handler(h)
	}},
	{"go-limiter", func(b *testing.B, h http.Handler) http.Handler {
		store, err := memorystore.New(&memorystore.Config{Tokens: plenty, Interval: time.Minute})
		check(b, err)
		b.Cleanup(func() { check(b, store.Close(ctx)) })
		limit, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
		check(b, err)
		return limit.Handle(h)
	}},
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHTTP passes requests of 1,000 clients through middleware that has a limit for each address and rejects none.
func BenchmarkHTTP(b *testing.B) {
	var contenders []contender
	for _, m := range middlewares {
		contenders = append(contenders, contender{m.name, func(b *testing.B) func() bool {
			served := m.wrap(b, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			requests := clients(1000)
			return func() bool {
				w := response{header: make(http.Header)}
				served.ServeHTTP(&w, requests[rand.IntN(len(requests))])
				return w.status == 0
			}
		}})
	}
	compare(b, contenders)
}

func clients(n int) []*http.Request {
	all := make([]*http.Request, n)
	for i := range all {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/orders", http.NoBody)
		if err != nil {
			panic(err)
		}
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:4711", i/250, i%250+1)
		all[i] = r
	}
	return all
}

// A response that keeps nothing but its status.
type response struct {
	header http.Header
	status int
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(p []byte) (int, error) { return len(p), nil }
