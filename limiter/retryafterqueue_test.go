package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

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
