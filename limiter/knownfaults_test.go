package limiter

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rate"
)

// Faults of other limiters that could have been ours. The conformance suite and the
// model have rules for others: waiters that give up, orders of the queue, exact times.

// x/time/rate (golang/go#65508) and httprate: a caller that has read the clock and
// takes the lock late sets time back, and the same period is refilled twice, or a
// window's counts are gone.
func TestAcquire_LateMoment(t *testing.T) {
	type late interface {
		Limiter
		StatisticsProvider
		acquire(ctx context.Context, now int64, n int, wait bool) (Lease, error)
	}
	synctest.Test(t, func(t *testing.T) {
		for name, l := range map[string]late{
			"TokenBucket":   weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 10, ReplenishmentPeriod: time.Second})),
			"FixedWindow":   weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 10, Window: time.Second})),
			"SlidingWindow": weir.Must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: 10, Window: time.Second, SegmentsPerWindow: 2})),
		} {
			take(t, l, 10)
			early := moment()
			time.Sleep(time.Second)
			take(t, l, 10)
			for range 3 {
				lease, err := l.acquire(t.Context(), early, 1, false)
				require.NoError(t, err)
				require.False(t, lease.Acquired(), "%s: %v", name, available(l))
				lease = refused(t, l, 1)
				wait, ok := lease.RetryAfter()
				assert.True(t, ok)
				assert.LessOrEqual(t, wait, time.Second)
			}
			time.Sleep(time.Second)
			assert.EqualValues(t, 10, available(l), name)
		}
	})
}

// A caller that read the clock just before midnight, and gets the lock after it, is a caller of the new day.
func TestAcquire_LateMomentOfCalendar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := weir.Must(NewCalendar(CalendarOptions{PermitLimit: 1, Every: rate.Day}))
		time.Sleep(23 * time.Hour)
		take(t, c, 1)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, available(c))
		lease, err := c.acquire(t.Context(), moment()-int64(500*time.Microsecond), 1, false)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
		refused(t, c, 1)
	})
}

// A program's limiters can be made outside a testing/synctest bubble and used in
// one, where it is another year.
func TestLimiters_InAndOutOfBubbles(t *testing.T) {
	for name, l := range map[string]interface {
		Limiter
		StatisticsProvider
	}{
		"TokenBucket":   weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 10, ReplenishmentPeriod: time.Second})),
		"FixedWindow":   weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 10, Window: time.Second})),
		"SlidingWindow": weir.Must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: 10, Window: time.Second, SegmentsPerWindow: 2})),
	} {
		take(t, l, 10)
		synctest.Test(t, func(t *testing.T) {
			refused(t, l, 1)
			time.Sleep(2 * time.Second)
			assert.EqualValues(t, 10, available(l), name)
			take(t, l, 10)
		})
		assert.EqualValues(t, 10, available(l), "%s: years later", name)
	}
}

// go-limiter (#29) and throttled: above some thousand tokens a second the interval
// between two was truncated, and a tenth of a per cent of the rate was left, or
// two thirds too many came.
func TestTokenBucket_HighRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []int64{31_623, 52_800_000, 300_000_000, 600_000_000, 7_000_000_019} {
			if rate > math.MaxInt/100 {
				continue // an int of 32 bits has no room for 100 seconds' worth
			}
			perSecond := int(rate)
			b := weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 100 * perSecond, TokensPerPeriod: perSecond, ReplenishmentPeriod: time.Second}))
			take(t, b, 100*perSecond)
			time.Sleep(17*time.Second + time.Second/2)
			assert.EqualValues(t, 17*perSecond, available(b))
		}
	})
}

// throttled: ten lost races on a hot key were an error to the caller.
func TestPartitioned_HotKeyConcurrentSafe(t *testing.T) {
	const limit, goroutines, each = 1000, 16, 2000
	p := newPartitioned(t, FactoryFor[string](TokenBucketOptions{
		TokenLimit: limit, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	}), PartitionedOptions{})
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				l, err := p.TryAcquire(t.Context(), "hot", 1)
				if err != nil {
					t.Error(err)
					return
				}
				if l.Acquired() {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, limit, granted.Load())
	s, err := p.Statistics("hot")
	require.NoError(t, err)
	assert.Equal(t, Statistics{SuccessfulLeases: limit, FailedLeases: goroutines*each - limit}, s)
}

// go-concurrency-limits: a release misses a waiter that is just being queued, and
// the waiter stalls until a timeout.
func TestConcurrency_ReleaseServesWaiterConcurrentSafe(t *testing.T) {
	l := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2, QueueLimit: 32}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range 2000 {
				lease, err := l.Acquire(ctx, 1+i%2)
				if err != nil || !lease.Acquired() {
					t.Errorf("stalled: %v %q", err, lease.Reason())
					return
				}
				lease.Release()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, Statistics{AvailablePermits: 2, SuccessfulLeases: 16 * 2000}, l.Statistics())
}
