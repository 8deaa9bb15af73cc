package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// "Queue limit reached" is said only by a limiter that has a queue.
func TestAcquire_Reason(t *testing.T) {
	for _, k := range kinds {
		for _, order := range []limiter.QueueOrder{limiter.OldestFirst, limiter.NewestFirst} {
			t.Run(k.String()+"/"+order.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limits := limitertest.Limits{Permits: 2, TokensPerPeriod: 2, Segments: 1, Period: time.Second, Order: order}
					l, err := build(k, limits)
					require.NoError(t, err)
					reason := func(l limiter.Limiter, n int) string {
						lease, err := l.Acquire(t.Context(), n)
						require.NoError(t, err)
						require.False(t, lease.Acquired())
						return lease.Reason()
					}
					held := take(t, l, 2)
					for _, n := range []int{0, 1, 2} {
						assert.Equal(t, limiter.ReasonNoPermit, reason(l, n))
					}
					lease, err := l.TryAcquire(t.Context(), 1)
					require.NoError(t, err)
					assert.Empty(t, lease.Reason())
					held.Release()

					limits.QueueLimit = 1
					l, err = build(k, limits)
					require.NoError(t, err)
					take(t, l, 2)
					ctx, cancel := context.WithCancel(t.Context())
					go func() { _, _ = l.Acquire(ctx, 1) }()
					synctest.Wait()
					assert.Equal(t, limiter.ReasonQueueLimit, reason(l, 2), "no room, now or ever")
					if order == limiter.OldestFirst {
						assert.Equal(t, limiter.ReasonQueueLimit, reason(l, 1))
					}
					cancel()
					synctest.Wait()
				})
			})
		}
	}
}
