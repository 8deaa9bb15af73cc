package limiter_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// Numbers and times at the end of what their types hold: nothing overflows, and
// no RetryAfter is in the past.

func extremes(t *testing.T, k limitertest.Kind, l limitertest.Limits, f func(lim limiter.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lim, err := build(k, l)
		if err != nil {
			t.Fatal(err)
		}
		f(lim)
	})
}

// take expects that n is granted.
func take(t *testing.T, l limiter.Limiter, n int) limiter.Lease {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), n)
	if err != nil || !lease.Acquired() || lease.Permits() != n {
		t.Fatalf("TryAcquire(%d) should be granted, got %+v %v", n, lease, err)
	}
	return lease
}

// deny expects that n is rejected, and returns RetryAfter.
func deny(t *testing.T, l limiter.Limiter, n int) time.Duration {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), n)
	if err != nil || lease.Acquired() {
		t.Fatalf("TryAcquire(%d) should be rejected, got %+v %v", n, lease, err)
	}
	d, _ := lease.RetryAfter()
	return d
}

func available(l limiter.Limiter) limiter.Statistics {
	return l.(limiter.StatisticsProvider).Statistics()
}

func TestLimits_Extreme(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			l := limitertest.Limits{
				Permits: math.MaxInt, TokensPerPeriod: math.MaxInt, Segments: 3, Period: 3 * time.Second, QueueLimit: math.MaxInt,
			}
			extremes(t, k, l, func(lim limiter.Limiter) {
				all := take(t, lim, math.MaxInt-1)
				take(t, lim, 1)
				deny(t, lim, 1)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				for _, n := range []int{math.MaxInt, 1} { // the second finds no room
					go func() { _, _ = lim.Acquire(ctx, n) }()
					synctest.Wait()
				}
				want := limiter.Statistics{QueuedPermits: math.MaxInt, SuccessfulLeases: 2, FailedLeases: 2}
				if got := available(lim); got != want {
					t.Errorf("statistics are %+v, want %+v", got, want)
				}
				deny(t, lim, math.MaxInt)
				cancel()
				synctest.Wait()
				all.Release()
				time.Sleep(24 * time.Hour)
				if k != limitertest.Concurrency {
					take(t, lim, math.MaxInt)
				} else {
					take(t, lim, math.MaxInt-1)
				}
			})
		})
	}
}

func TestReconfigure_ExtremeLimits(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			l := limitertest.Limits{Permits: math.MaxInt, TokensPerPeriod: 1, Segments: 3, Period: 3 * time.Second, QueueLimit: 1}
			extremes(t, k, l, func(lim limiter.Limiter) {
				take(t, lim, math.MaxInt)
				for _, limit := range []int{1, 5, 1, math.MaxInt, 2} {
					l.Permits = limit
					if err := reconfigure(lim, l); err != nil {
						t.Fatal(err)
					}
					if got := available(lim).AvailablePermits; got != 0 {
						t.Fatalf("%d are available of %d, though all of the largest limit are in use", got, limit)
					}
					if d := deny(t, lim, 1); d < 0 || k != limitertest.Concurrency && d == 0 {
						t.Errorf("RetryAfter is %v", d)
					}
				}
			})
		})
	}
}

func TestLimits_ExtremePeriods(t *testing.T) {
	for _, k := range kinds[1:4] {
		t.Run(k.String(), func(t *testing.T) {
			l := limitertest.Limits{Permits: 4, TokensPerPeriod: 1, Segments: 1, Period: math.MaxInt64, QueueLimit: 4}
			extremes(t, k, l, func(lim limiter.Limiter) {
				time.Sleep(time.Hour)
				take(t, lim, 4)
				if d := deny(t, lim, 1); d != math.MaxInt64-time.Hour {
					t.Errorf("RetryAfter is %v, want %v", d, math.MaxInt64-time.Hour)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
				defer cancel()
				if lease, err := lim.Acquire(ctx, 3); err == nil {
					t.Errorf("Acquire waits for centuries, got %+v", lease)
				}
				if d := deny(t, lim, 4); d < math.MaxInt64-25*time.Hour {
					t.Errorf("RetryAfter is %v, want as long as a Duration goes", d)
				}
				l.Period = time.Nanosecond
				if err := reconfigure(lim, l); err != nil {
					t.Fatal(err)
				}
				take(t, lim, 1)
				time.Sleep(100 * 365 * 24 * time.Hour) // 3e18 periods
				take(t, lim, 4)
			})
		})
	}
}

// A debt that takes longer to pay back than a Duration lasts.
func TestRetryAfter_Saturates(t *testing.T) {
	l := limitertest.Limits{Permits: math.MaxInt, TokensPerPeriod: 1, Period: time.Hour, QueueLimit: 10}
	extremes(t, limitertest.TokenBucket, l, func(lim limiter.Limiter) {
		take(t, lim, math.MaxInt)
		if d := deny(t, lim, math.MaxInt); d < math.MaxInt64-time.Hour {
			t.Errorf("RetryAfter is %v, want as long as a Duration goes", d)
		}
		if d := deny(t, lim, 3); d != 3*time.Hour {
			t.Errorf("RetryAfter is %v, want 3 h", d)
		}
	})
}
