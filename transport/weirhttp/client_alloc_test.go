package weirhttp_test

import (
	"math"
	"net/http"
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

// Two copies of the request, with URL and header, are most of them: one for strategies, one for the attempt.
func TestTransport_Allocations(t *testing.T) {
	perHost := weir.Must(limiter.NewPartitionedByKey(func(host string) string { return host }, limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: math.MaxInt32, TokensPerPeriod: 1 << 30, ReplenishmentPeriod: time.Second,
	}), nil))
	defer perHost.Close()
	r := newRequest(t, http.MethodGet, url, "")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer abcdefghijklmnopqrstuvwxyz")
	body := textBody("")
	base := plainBase(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
	})
	for name, c := range map[string]struct {
		strategies []pipeline.Strategy
		want       float64
	}{
		"none":    {nil, 19},
		"retry":   {[]pipeline.Strategy{retry.New(nil)}, 19},
		"limit":   {[]pipeline.Strategy{ratelimit.NewPartitioned(perHost, weirhttp.HostFrom, nil)}, 19},
		"timeout": {[]pipeline.Strategy{timeout.New(time.Minute, nil)}, 35},
	} {
		transport := roundTripper(t, base, nil, c.strategies...)
		assert.Equal(t, c.want, testing.AllocsPerRun(100, func() {
			if resp, err := transport.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}), name)
	}
}
