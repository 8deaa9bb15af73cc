package ratelimit_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

func bucket(tokens int, period time.Duration) *limiter.TokenBucket {
	return weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: tokens, TokensPerPeriod: tokens, ReplenishmentPeriod: period}))
}

func TestAllocations(t *testing.T) {
	l := bucket(math.MaxInt32, time.Hour)
	defer l.Close()
	own := ratelimit.New(nil, nil)
	defer own.Close()
	for name, c := range map[string]struct {
		strategies []pipeline.Strategy
		want       float64
	}{
		"token bucket":           {[]pipeline.Strategy{ratelimit.New(l, nil)}, 0},
		"shadow":                 {[]pipeline.Strategy{ratelimit.New(l, &ratelimit.Options{Shadow: true})}, 0},
		"concurrency":            {[]pipeline.Strategy{own}, concurrencyAllocations(t, own)},
		"retry + bucket":         {[]pipeline.Strategy{retry.New(nil), ratelimit.New(l, nil)}, 0},
		"retry + timeout+bucket": {[]pipeline.Strategy{retry.New(nil), timeout.New(0, nil), ratelimit.New(l, nil)}, 1},
	} {
		p := weir.Must(pipeline.New("p", c.strategies...))
		if got := testing.AllocsPerRun(200, func() { _ = p.Execute(t.Context(), nothing) }); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}

// concurrencyAllocations is what the limiter by itself costs: the strategy adds
// nothing to it.
func concurrencyAllocations(t *testing.T, s *ratelimit.Strategy) float64 {
	t.Helper()
	return testing.AllocsPerRun(200, func() {
		lease, _ := s.Limiter().Acquire(t.Context(), 1)
		lease.Release()
	})
}

// What can never be granted is not asked for again.
func TestStrategy_RetryOfTooManyPermits(t *testing.T) {
	retries := retry.New(&retry.Options{OnRetry: func(context.Context, pipeline.Event) { t.Error("again") }, Delay: -1})
	s := ratelimit.New(bucket(1, time.Hour), &ratelimit.Options{Permits: func(context.Context) int { return 2 }})
	err := weir.Must(pipeline.New("p", retries, s)).Execute(t.Context(), nothing)
	assert.ErrorIs(t, err, limiter.ErrPermitCount)
	assert.True(t, pipeline.NotCalled(err))
}
