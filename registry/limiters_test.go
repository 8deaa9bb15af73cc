package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A subject is one kind of the registry's limiters, with n permits.
type subject struct {
	kind  string
	make  func(b *registry.Builder, n int) limiter.Limiter
	limit func(limiter.Limiter) int
}

func bucketOptions(n int) limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{TokenLimit: n, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
}

func windowOptions(n int) limiter.FixedWindowOptions {
	return limiter.FixedWindowOptions{PermitLimit: n, Window: time.Hour}
}

func slidingOptions(n int) limiter.SlidingWindowOptions {
	return limiter.SlidingWindowOptions{PermitLimit: n, Window: time.Hour, SegmentsPerWindow: 60}
}

var subjects = []subject{
	{
		kind:  "token bucket",
		make:  func(b *registry.Builder, n int) limiter.Limiter { return b.TokenBucket("l", bucketOptions(n)) },
		limit: func(l limiter.Limiter) int { return l.(*limiter.TokenBucket).Limits().Permits },
	},
	{
		kind:  "fixed window",
		make:  func(b *registry.Builder, n int) limiter.Limiter { return b.FixedWindow("l", windowOptions(n)) },
		limit: func(l limiter.Limiter) int { return l.(*limiter.FixedWindow).Limits().Permits },
	},
	{
		kind:  "sliding window",
		make:  func(b *registry.Builder, n int) limiter.Limiter { return b.SlidingWindow("l", slidingOptions(n)) },
		limit: func(l limiter.Limiter) int { return l.(*limiter.SlidingWindow).Limits().Permits },
	},
	{
		kind: "concurrency",
		make: func(b *registry.Builder, n int) limiter.Limiter {
			return b.Concurrency("l", limiter.ConcurrencyOptions{PermitLimit: n})
		},
		limit: func(l limiter.Limiter) int { return l.(*limiter.Concurrency).Limits().Permits },
	},
}

// available is how many permits there are left.
func available(l limiter.Limiter) int {
	return int(l.(limiter.StatisticsProvider).Statistics().AvailablePermits)
}

// take takes n permits and does not give them back.
func take(t *testing.T, l limiter.Limiter, n int) {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), n)
	require.NoError(t, err)
	require.True(t, lease.Acquired())
}

func isOpen(t *testing.T, l limiter.Limiter) bool {
	t.Helper()
	_, err := l.TryAcquire(t.Context(), 0)
	if err != nil {
		require.ErrorIs(t, err, limiter.ErrClosed)
	}
	return err == nil
}

func TestTokenBucket_KeptAndReconfigured(t *testing.T) {
	for _, s := range subjects {
		t.Run(s.kind, func(t *testing.T) {
			r := open(t, nil)
			var l limiter.Limiter
			limit := 10
			require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
				l = s.make(b, limit)
				return nil
			}))
			first := l
			take(t, l, 7)
			for range 3 {
				require.NoError(t, r.Reload(t.Context()))
				require.Same(t, first, l)
				assert.Equal(t, 3, available(l), "no fresh burst")
			}
			for _, step := range []struct{ limit, left int }{{8, 1}, {5, 0}, {20, 13}} {
				limit = step.limit
				require.NoError(t, r.Reload(t.Context()))
				require.Same(t, first, l)
				assert.Equal(t, limit, s.limit(l))
				assert.Equal(t, step.left, available(l))
			}
			for name, info := range r.Limiters() {
				assert.Equal(t, "l", name)
				assert.Equal(t, s.kind, info.Kind)
				assert.Same(t, l, info.Limiter)
			}
			require.NoError(t, r.Close(t.Context()))
			assert.False(t, isOpen(t, l))
		})
	}
}

// Under one name every change of kind makes another limiter. The old one stays open
// until its version has drained.
func TestTokenBucket_ChangeOfKind(t *testing.T) {
	for i, from := range subjects {
		to := subjects[(i+1)%len(subjects)]
		t.Run(from.kind+" to "+to.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, &registry.Options{DrainTimeout: -1})
				now := from
				var l limiter.Limiter
				p := define(t, r, "orders", func(b *registry.Builder) error {
					l = now.make(b, 5)
					b.Add(ratelimit.New(l, nil))
					return nil
				})
				old := l
				end := hold(t, p)
				now = to
				require.NoError(t, r.Reload(t.Context()))
				synctest.Wait()
				assert.True(t, isOpen(t, old), "an execution still holds a permit of it")
				assert.Equal(t, 4, available(old))
				assert.Equal(t, 5, available(l))
				for _, info := range r.Limiters() {
					assert.Equal(t, to.kind, info.Kind)
				}
				end()
				synctest.Wait()
				assert.False(t, isOpen(t, old))
				assert.True(t, isOpen(t, l))
				require.NoError(t, p.Execute(t.Context(), nothing))
				assert.Equal(t, 1, r.OwnedLimiters())
			})
		})
	}
}
