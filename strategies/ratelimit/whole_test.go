package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// Nothing in failsafe-go honours what an inner limiter asks for.
func TestStrategy_InsideARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bucket(1, 10*time.Second)
		defer l.Close()
		p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{Delay: -1, MaxRetries: 1}), ratelimit.New(l, nil)))
		began := time.Now()
		require.NoError(t, p.Execute(t.Context(), nothing))
		require.NoError(t, p.Execute(t.Context(), nothing), "exactly when the bucket is full again, and with one retry")
		assert.Equal(t, 10*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := p.Execute(ctx, nothing)
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "at once: the caller cannot wait that long")
		assert.Equal(t, 10*time.Second, time.Since(began))
	})
}

func TestStrategy_TimeoutOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
		defer l.Close()
		held, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		time.AfterFunc(2500*time.Millisecond, held.Release)
		attempts := 0
		p := weir.Must(pipeline.New("orders",
			retry.New(&retry.Options{Delay: -1, OnRetry: func(_ context.Context, r pipeline.Event) {
				attempts++
				failure, ok := errors.AsType[*timeout.Error](r.Err)
				require.True(t, ok)
				assert.ErrorIs(t, failure.Err, context.DeadlineExceeded)
			}}),
			timeout.New(time.Second, nil),
			ratelimit.New(l, nil),
		))
		began := time.Now()
		require.NoError(t, p.Execute(t.Context(), nothing))
		assert.Equal(t, 2500*time.Millisecond, time.Since(began))
		assert.Equal(t, 2, attempts)
		assert.Zero(t, l.Statistics().QueuedPermits)
		assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
	})
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

func BenchmarkLimiterAlone(b *testing.B) {
	l := bucket(math.MaxInt32, time.Hour)
	defer l.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, _ := l.Acquire(ctx, 1)
		lease.Release()
	}
}
