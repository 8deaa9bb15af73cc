package limiter_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/model"
	"github.com/weir-go/weir/limiter/limitertest"
)

// The scripts of TestModel take permits in a few segments. Here hundreds of them are behind the forecast for a caller
// that is rejected while others wait: waiters for few and many permits, for zero, and for more than one window has.
func TestSlidingWindow_ForecastOfManySegments(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { forecastManySegments(t, rand.New(rand.NewPCG(seed, 6))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func forecastManySegments(t *testing.T, r *rand.Rand) {
	segments := []int{3, 40, 300, 700}[r.IntN(4)]
	limits := limitertest.Limits{
		Permits: segments + r.IntN(2*segments), Segments: segments, Period: time.Duration(segments) * 10,
		QueueLimit: 4 * segments, Order: limiter.QueueOrder(r.IntN(3) / 2),
	}
	l, err := build(limitertest.SlidingWindow, limits)
	require.NoError(t, err)
	m := model.New(limitertest.SlidingWindow, limits)
	start := time.Now()
	sleep := func(d int) {
		time.Sleep(time.Duration(d))
		synctest.Wait()
		m.Advance(time.Since(start))
	}
	compare := func(want *model.Request, lease limiter.Lease, err error) {
		require.NoError(t, err)
		require.Equal(t, want.Outcome == model.Granted, lease.Acquired())
		d, _ := lease.RetryAfter()
		require.True(t, want.RetryOptional || want.RetryMin <= d && d <= want.RetryMax,
			"RetryAfter for %d is %v, want %v to %v", want.N, d, want.RetryMin, want.RetryMax)
	}
	try := func(n int) {
		lease, err := l.TryAcquire(t.Context(), n)
		compare(m.Try(n), lease, err)
	}
	for range segments {
		if r.IntN(8) > 0 {
			try(1 + r.IntN(max(limits.Permits/segments, 1)))
		}
		sleep(10)
	}
	if left := m.Statistics().AvailablePermits; left > 0 {
		try(int(left))
	}
	ctx, cancel := context.WithCancel(t.Context())
	most := []int{2, 20, limits.Permits}[r.IntN(3)]
	for range r.IntN(12) {
		n := r.IntN(min(most, limits.Permits) + 1)
		m.Acquire(n)
		go func() { _, _ = l.Acquire(ctx, n) }()
		synctest.Wait()
	}
	for range 8 {
		try(r.IntN(limits.Permits + 1))
		sleep(r.IntN(10 * segments / 4))
	}
	cancel()
	synctest.Wait()
}
