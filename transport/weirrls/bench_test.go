package weirrls

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// benchService returns a service with limits that admit everything.
func benchService(tb testing.TB) *Service {
	perKey := weir.Must(PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: math.MaxInt32, TokensPerPeriod: math.MaxInt32, ReplenishmentPeriod: time.Hour,
	}), nil))
	tb.Cleanup(func() { _ = perKey.Close() })
	all := weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: math.MaxInt32, Window: time.Second, SegmentsPerWindow: 10}))
	tb.Cleanup(func() { _ = all.Close() })
	return newService(tb, nil,
		Descriptor{Key: "remote_address", Limit: &Limit{Partitioned: perKey}},
		Descriptor{Key: "tenant", Descriptors: []Descriptor{
			{Key: "path", Value: "/reports/*", Limit: &Limit{Limiter: all}}, {Key: "path", Limit: windowOf(math.MaxUint32, Minute)},
		}},
	)
}

// benchRequests are requests by what limits them.
var benchRequests = map[string]*ratelimitv3.RateLimitRequest{
	"two exact":   request(describe("remote_address", "10.1.2.3"), describe("tenant", "a", "path", "/reports/7")),
	"two windows": request(describe("tenant", "a", "path", "/orders"), describe("tenant", "b", "path", "/orders")),
	"no rule":     request(describe("x", "y")),
}

func TestShouldRateLimit_Allocations(t *testing.T) {
	s := benchService(t)
	// The decision, its checks, the answer and its list of statuses; and for each descriptor the hits, a status of up to three
	// objects, a key, and the names of long entries.
	for name, most := range map[string]float64{"two exact": 20, "two windows": 22, "no rule": 10} {
		r := benchRequests[name]
		assert.LessOrEqual(t, testing.AllocsPerRun(200, func() { _, _ = s.ShouldRateLimit(context.Background(), r) }), most, name)
	}
}

func BenchmarkShouldRateLimit(b *testing.B) {
	s := benchService(b)
	for name, r := range benchRequests {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.ShouldRateLimit(context.Background(), r)
			}
		})
	}
	b.Run("two exact, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = s.ShouldRateLimit(context.Background(), benchRequests["two exact"])
			}
		})
	})
}

func BenchmarkCounters(b *testing.B) {
	for name, maxKeys := range map[string]int{"room for all keys": 1 << 20, "a flood of keys": 1 << 14} {
		b.Run(name, func(b *testing.B) {
			c := newMemoryCounters(maxKeys)
			span := timeSpan{0, secondsOf[Day]}
			keys := make([]string, 1<<16)
			for i := range keys {
				keys[i] = "edge,remote_address=" + strconv.Itoa(i)
			}
			i := 0
			for b.Loop() {
				_, _ = c.count(b.Context(), span, keys[i&(1<<16-1)], 1)
				i++
			}
		})
	}
}
