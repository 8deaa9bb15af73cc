package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// The tenants of an instance that wait for a shared limiter take turns, and pay what their calls have cost more than was known.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := weir.Must(store.New(storetest.NewMemory(), nil))
		defer func() { require.NoError(t, s.Close()) }()
		l := weir.Must(s.Limiter("tokens", limiter.TokenBucketOptions{
			TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 100, QueueOrder: limiter.Fair,
		}, nil))
		require.True(t, weir.Must(l.TryAcquire(t.Context(), 1)).Acquired())
		got := make(chan string, 20)
		for _, key := range []string{"a", "a", "a", "b", "a", "b", "c"} {
			go func() {
				lease := weir.Must(l.Acquire(limiter.WithTenant(t.Context(), limiter.Tenant{Key: key}), 1))
				if tenant, ok := limiter.TenantKey.From(lease); assert.True(t, ok) {
					assert.Equal(t, key, tenant.Key)
				}
				if key == "b" {
					_, ok := lease.Adjust(4)
					assert.True(t, ok)
				}
				got <- key
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		var order []string
		for range 7 {
			order = append(order, <-got)
		}
		assert.Equal(t, []string{"a", "b", "c", "a", "a", "a", "b"}, order)
	})
}
