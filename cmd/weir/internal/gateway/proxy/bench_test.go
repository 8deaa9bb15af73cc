package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// A discarding is a ResponseWriter without a connection.
type discarding struct{ header http.Header }

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarding) WriteHeader(int)             {}

// BenchmarkHandler compares the handler of the gateway with an httputil.ReverseProxy, both without connections.
func BenchmarkHandler(b *testing.B) {
	body := strings.Repeat("weir\n", 200)
	base := transportFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, ProtoMajor: 1, Request: r, ContentLength: int64(len(body)),
			Header: http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"1000"}},
			Body:   io.NopCloser(strings.NewReader(body)),
		}, nil
	})
	target, err := url.Parse("http://127.0.0.1:1")
	require.NoError(b, err)
	handler := func(o TableOptions) http.Handler {
		table, err := NewTable(&o)
		require.NoError(b, err)
		return NewHandler(weir.Must(pipeline.New("gateway", table)), nil)
	}
	u := upstream.New("u", base, upstream.NewAddress(target, nil))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Policies: map[string]weirhttp.Policy{
		"p": {Headers: weirhttp.Draft11, Limit: weirhttp.Of(weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 1e9, TokensPerPeriod: 1e9, ReplenishmentPeriod: time.Second,
		})))},
	}}))
	for name, h := range map[string]http.Handler{
		"ReverseProxy": &httputil.ReverseProxy{Transport: base, BufferPool: &buffers, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		}},
		"gateway": handler(TableOptions{Via: "weir", Routes: []Route{{Match: "/", Upstream: u}}}),
		"limit":   handler(TableOptions{Via: "weir", Limits: limits, Routes: []Route{{Match: "/", Upstream: u, Policies: []string{"p"}}}}),
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://gateway/orders", nil)
			r.Header = http.Header{"User-Agent": {"wrk"}, "Accept": {"*/*"}}
			b.ReportAllocs()
			for b.Loop() {
				own := *r
				h.ServeHTTP(&discarding{make(http.Header)}, &own)
			}
		})
	}
}
