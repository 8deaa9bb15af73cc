package limiter_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
)

// Tenants that wait all the time get permits by their weights.
func TestFair_Shares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 1000, QueueOrder: limiter.Fair,
		})
		require.NoError(t, err)
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Second)
		defer cancel()
		var mu sync.Mutex
		got := map[string]int{}
		var wg sync.WaitGroup
		for _, tenant := range []limiter.Tenant{{Key: "a"}, {Key: "b", Weight: 3}, {Key: "c"}} {
			for i := range 10 {
				n := map[string]int{"a": 1, "b": 2, "c": 1 + i}[tenant.Key]
				wg.Go(func() {
					for {
						lease, err := l.Acquire(limiter.WithTenant(ctx, tenant), n)
						if err != nil {
							return
						}
						if !lease.Acquired() {
							panic(lease.Reason())
						}
						mu.Lock()
						got[tenant.Key] += n
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		require.InDelta(t, 200, got["a"], 12)
		require.InDelta(t, 600, got["b"], 12)
		require.InDelta(t, 200, got["c"], 12)
	})
}
