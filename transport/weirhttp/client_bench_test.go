package weirhttp_test

import (
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// stub is a base transport that does as little as possible.
type stub struct{ body io.ReadCloser }

func (s stub) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: s.body, Request: r}, nil
}

type emptyBody struct{ io.Reader }

func (emptyBody) Close() error { return nil }

func benchmarkRequest(tb testing.TB) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "https://api.example.com/orders/7", http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer abcdefghijklmnopqrstuvwxyz")
	r.Header.Set("User-Agent", "weir")
	return r
}

// pipelinesToMeasure returns pipelines from an empty one to one with all strategies that a client usually has.
func pipelinesToMeasure(tb testing.TB) map[string]*pipeline.Pipeline {
	tb.Helper()
	perHost, err := limiter.NewPartitioned(func(host string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: host, New: manyTokens}
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = perHost.Close() })
	retries := func() pipeline.Strategy { return retry.New(&retry.Options{}) }
	limit := func() pipeline.Strategy { return ratelimit.NewPartitioned(perHost, weirhttp.HostFrom, nil) }
	return map[string]*pipeline.Pipeline{
		"none":              weir.Must(pipeline.New("api")),
		"retry":             weir.Must(pipeline.New("api", retries())),
		"limit":             weir.Must(pipeline.New("api", limit())),
		"timeout":           weir.Must(pipeline.New("api", timeout.New(time.Minute, nil))),
		"retryLimitTimeout": weir.Must(pipeline.New("api", retries(), limit(), timeout.New(time.Minute, nil))),
	}
}

var manyTokens = limiter.FactoryFor[string](limiter.TokenBucketOptions{
	TokenLimit: math.MaxInt32, TokensPerPeriod: 1 << 30, ReplenishmentPeriod: time.Second,
})

func BenchmarkTransport(b *testing.B) {
	base := stub{body: emptyBody{strings.NewReader("")}}
	b.Run("base", func(b *testing.B) {
		r := benchmarkRequest(b)
		b.ReportAllocs()
		for b.Loop() {
			resp, err := base.RoundTrip(r)
			if err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	})
	for name, p := range pipelinesToMeasure(b) {
		b.Run(name, func(b *testing.B) {
			transport := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base}))
			r := benchmarkRequest(b)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := transport.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// Two copies of the request, with URL and header, are most of them: one for strategies, one for the attempt.
func TestTransport_Allocations(t *testing.T) {
	r := benchmarkRequest(t)
	base := stub{body: emptyBody{strings.NewReader("")}}
	for name, want := range map[string]float64{"none": 19, "retry": 19, "limit": 19, "timeout": 35} {
		transport := weir.Must(weirhttp.NewTransport(pipelinesToMeasure(t)[name], &weirhttp.TransportOptions{Base: base}))
		assert.Equal(t, want, testing.AllocsPerRun(100, func() {
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}), name)
	}
}
