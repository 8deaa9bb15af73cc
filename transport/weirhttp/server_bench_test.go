package weirhttp

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// discardWriter is a ResponseWriter that does nothing.
type discardWriter struct{ header http.Header }

func (n discardWriter) Header() http.Header         { return n.header }
func (n discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (n discardWriter) WriteHeader(int)             {}

var served = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func keyedBuckets(t testing.TB, tokens int) *limiter.PartitionedLimiter[string, string] {
	p, err := PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: tokens, TokensPerPeriod: tokens, ReplenishmentPeriod: time.Hour,
	}), &limiter.PartitionedOptions{MaxPartitions: 1000})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func keyedRequest() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/orders", nil)
	r.Header.Set("X-Api-Key", "alice")
	return r
}

func keyedHandler(t testing.TB) http.Handler {
	return weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"per-user": {Limit: ByKey(keyedBuckets(t, math.MaxInt32), Header("X-Api-Key"))},
	}})).Handler(served, "per-user")
}

func benchmarkHandler(b *testing.B, h http.Handler, r *http.Request) {
	w := discardWriter{make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func BenchmarkServer(b *testing.B) {
	b.Run("bare handler", func(b *testing.B) { benchmarkHandler(b, served, keyedRequest()) })
	b.Run("keyed token bucket", func(b *testing.B) { benchmarkHandler(b, keyedHandler(b), keyedRequest()) })
	b.Run("global and keyed", func(b *testing.B) {
		slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 10}))
		l := weir.Must(NewLimits(&LimitsOptions{
			Global:   Policy{Limit: Of(slots)},
			Policies: map[string]Policy{"per-user": {Limit: ByKey(keyedBuckets(b, math.MaxInt32), Header("X-Api-Key"))}},
		}))
		benchmarkHandler(b, l.Handler(served, "per-user"), keyedRequest())
	})
	b.Run("keyed, rejected", func(b *testing.B) {
		l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
			"per-user": {Limit: ByKey(keyedBuckets(b, 1), Header("X-Api-Key"))},
		}}))
		benchmarkHandler(b, l.Handler(served, "per-user"), keyedRequest())
	})
	b.Run("keyed, draft 11 headers", func(b *testing.B) {
		l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
			"per-user": {Limit: ByKey(keyedBuckets(b, math.MaxInt32), Header("X-Api-Key")), Quota: 100, Window: time.Hour},
		}}))
		h := l.Handler(served, "per-user")
		w, r := discardWriter{make(http.Header)}, keyedRequest()
		b.ReportAllocs()
		for b.Loop() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}
	})
	b.Run("measured", func(b *testing.B) { benchmarkHandler(b, Measure(discardRecorder{}, nil)(served), keyedRequest()) })
	b.Run("through a timeout", func(b *testing.B) {
		p := weir.Must(pipeline.New("orders", timeout.New(time.Minute, nil)))
		benchmarkHandler(b, Through(p, nil)(served), keyedRequest())
	})
}

// The call is the context, so only the call and the copy of the request are allocated.
func TestServer_Allocations(t *testing.T) {
	h, r, w := keyedHandler(t), keyedRequest(), discardWriter{make(http.Header)}
	h.ServeHTTP(w, r) // makes the partition
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), 2.0)
}
