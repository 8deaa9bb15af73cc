package limiter_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// timedKinds are the kinds whose permits come back with time.
var timedKinds = []limitertest.Kind{limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket}

// A timer may come many periods late. Each waiter then gets the permit of a line of its own, and what came due
// after the last of them is gone except for a full limiter's permits.
func TestAcquire_LateTimer(t *testing.T) {
	for _, k := range timedKinds {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const late, waiters = 10, 3
				l, err := build(k, limitertest.Limits{
					Permits: 1, TokensPerPeriod: 1, Segments: 1, Period: time.Millisecond, QueueLimit: waiters,
				})
				require.NoError(t, err)
				take(t, l, 1)
				leases := make(chan limiter.Lease, waiters)
				for range waiters {
					go func() {
						lease, err := l.Acquire(context.Background(), 1)
						assert.NoError(t, err)
						leases <- lease
					}()
				}
				synctest.Wait()
				limiter.HoldTimer(l)
				time.Sleep(late * time.Millisecond)
				limiter.FireTimer(l)
				synctest.Wait()

				require.Len(t, leases, waiters)
				for range waiters {
					lease := <-leases
					require.True(t, lease.Acquired())
				}
				assert.EqualValues(t, 1, available(l).AvailablePermits, "no caller waited at the other seven lines")
				take(t, l, 1)
				assert.Equal(t, time.Millisecond, deny(t, l, 1), "the grid has not moved")
			})
		})
	}
}

// In real time, where callers also spin for permits that are due in a few microseconds: no permit is
// granted twice, none is lost, and waiters that leave take none along.
func TestAcquire_LateTimerConcurrentSafe(t *testing.T) {
	for _, k := range timedKinds {
		t.Run(k.String(), func(t *testing.T) {
			const waiters, grants = 8, 400
			limits := limitertest.Limits{Permits: 2, TokensPerPeriod: 1, Segments: 2, Period: 10 * time.Microsecond, QueueLimit: waiters}
			begin := time.Now()
			l, err := build(k, limits)
			require.NoError(t, err)
			var got, granted atomic.Int64
			var wg sync.WaitGroup
			for i := range waiters {
				wg.Go(func() {
					for granted.Load() < grants {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i+1)*20*time.Microsecond)
						if lease, err := l.Acquire(ctx, 1+i%2); err == nil && lease.Acquired() {
							got.Add(int64(lease.Permits()))
							granted.Add(1)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			lines := int64(time.Since(begin)/limits.Step(k)) + 1
			most := int64(limits.Permits) * (lines + 1)
			if k == limitertest.TokenBucket {
				most = int64(limits.Permits) + lines
			}
			assert.LessOrEqual(t, got.Load(), most)
			time.Sleep(time.Millisecond)
			s := available(l)
			assert.EqualValues(t, limits.Permits, s.AvailablePermits)
			assert.Zero(t, s.QueuedPermits)
			assert.Equal(t, granted.Load(), s.SuccessfulLeases)
		})
	}
}

// badContext is a context whose methods misbehave once they are armed.
type badContext struct {
	context.Context
	done func() <-chan struct{}
}

func (c badContext) Done() <-chan struct{} { return c.done() }

// A context whose Done panics leaves no waiter behind: it would take a permit for good.
func TestAcquire_DoneThatPanics(t *testing.T) {
	for _, k := range kinds {
		for name, does := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
			t.Run(k.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, err := build(k, limitertest.Limits{Permits: 1, TokensPerPeriod: 1, Segments: 1, Period: time.Second, QueueLimit: 5})
					require.NoError(t, err)
					lease := take(t, l, 1)
					for _, late := range []bool{false, true} { // true: it panics when the permit has been granted
						ctx := badContext{t.Context(), func() <-chan struct{} {
							if late {
								lease.Release()
								time.Sleep(24 * time.Hour)
							}
							does()
							return nil
						}}
						var wg sync.WaitGroup
						wg.Go(func() {
							defer func() { _ = recover() }()
							_, _ = l.Acquire(ctx, 1)
							t.Error("the caller does not learn of it")
						})
						wg.Wait()
						assert.Zero(t, available(l).QueuedPermits)
						assert.EqualValues(t, 1, available(l).SuccessfulLeases)
					}
					assert.EqualValues(t, 1, available(l).AvailablePermits)
					take(t, l, 1)
				})
			})
		}
	}
}

// Behind more waiters than a forecast looks at one by one, RetryAfter is at most one period late: a caller that is told to
// come back after the queue has long been served waits for nothing.
func TestRetryAfter_BehindManyWaiters(t *testing.T) {
	const waiting = 500
	for name, test := range map[string]struct {
		limiter func() limiter.Limiter
		served  time.Duration // when the queue is served and one more permit is there
		period  time.Duration
	}{
		"fixed window": {func() limiter.Limiter {
			return weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Second, QueueLimit: waiting}))
		}, 6 * time.Second, time.Second},
		"token bucket": {func() limiter.Limiter {
			return weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
				TokenLimit: 100, TokensPerPeriod: 10, ReplenishmentPeriod: 100 * time.Millisecond, QueueLimit: waiting,
			}))
		}, 5100 * time.Millisecond, 100 * time.Millisecond},
		"token bucket that holds less than a period brings": {func() limiter.Limiter {
			return weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
				TokenLimit: 100, TokensPerPeriod: 1000, ReplenishmentPeriod: time.Second, QueueLimit: waiting,
			}))
		}, 6 * time.Second, time.Second},
		"sliding window": {func() limiter.Limiter {
			return weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 100, Window: time.Second, SegmentsPerWindow: 10, QueueLimit: waiting}))
		}, 6 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := test.limiter()
				granted(t, l, 100)
				ctx, cancel := context.WithCancel(t.Context())
				for range waiting {
					go func() { _, _ = l.Acquire(ctx, 1) }()
				}
				synctest.Wait()
				lease, err := l.Acquire(t.Context(), 1)
				require.NoError(t, err)
				d, ok := lease.RetryAfter()
				require.True(t, ok)
				assert.GreaterOrEqual(t, d, test.served, "earlier it would be rejected again")
				assert.LessOrEqual(t, d, test.served+test.period)
				time.Sleep(d)
				synctest.Wait()
				granted(t, l, 1)
				cancel()
			})
		})
	}
}

// granted takes n permits, which must be free.
func granted(t *testing.T, l limiter.Limiter, n int) {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), n)
	require.NoError(t, err)
	require.True(t, lease.Acquired())
}
