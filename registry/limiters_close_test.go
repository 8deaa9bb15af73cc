package registry_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func TestTokenBucket_InvalidOptions(t *testing.T) {
	for field, f := range map[string]func(b *registry.Builder) limiter.Limiter{
		"TokensPerPeriod": func(b *registry.Builder) limiter.Limiter {
			return b.TokenBucket("mine", limiter.TokenBucketOptions{TokenLimit: 1, ReplenishmentPeriod: 1})
		},
		"Window": func(b *registry.Builder) limiter.Limiter {
			return b.FixedWindow("mine", limiter.FixedWindowOptions{PermitLimit: 1})
		},
		"SegmentsPerWindow": func(b *registry.Builder) limiter.Limiter {
			return b.SlidingWindow("mine", limiter.SlidingWindowOptions{PermitLimit: 1, Window: 1})
		},
		"PermitLimit": func(b *registry.Builder) limiter.Limiter { return b.Concurrency("mine", limiter.ConcurrencyOptions{}) },
	} {
		r := open(t, nil)
		err := r.Define("orders", func(b *registry.Builder) error {
			b.Add(ratelimit.New(f(b), nil)) // what is returned can be used to build on
			return nil
		})
		assert.ErrorIs(t, err, limiter.ErrInvalidOptions)
		assert.ErrorContains(t, err, `"mine"`)
		assert.ErrorContains(t, err, field)
		assert.ErrorContains(t, err, "orders")
		assert.Zero(t, r.OwnedLimiters())
	}
}

func TestTokenBucket_WithoutName(t *testing.T) {
	r := open(t, nil)
	assert.ErrorContains(t, r.Define("orders", func(b *registry.Builder) error {
		b.Concurrency("", one(1))
		return nil
	}), "needs a name")
}

// Who waits in the queue of a limiter gets what a reload gives it, and nothing of a reload that fails because a kept value refuses
// its options.
func TestTokenBucket_ReloadServesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		limit, kept := 1, &workshop{step: 1}
		p := define(t, r, "orders", func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency("l", one(limit)), nil))
			return kept.build(b)
		})
		end := hold(t, p)
		done := make(chan error, 1)
		go func() { done <- p.Execute(t.Context(), nothing) }()
		synctest.Wait()
		limit, kept.step, kept.made[0].refuse = 2, 2, errBoom
		require.ErrorIs(t, r.Reload(t.Context()), errBoom)
		synctest.Wait()
		assert.Empty(t, done)
		kept.made[0].refuse = nil
		require.NoError(t, r.Reload(t.Context()))
		assert.NoError(t, <-done)
		end()
	})
}

// A program that closes a limiter of the registry cannot change it any more; nothing
// else changes with it either.
func TestReload_LimiterRefusesOptions(t *testing.T) {
	var events recorder
	r := open(t, &registry.Options{Listener: &events})
	limiters := make(map[string]*limiter.Concurrency)
	limit := 5
	require.NoError(t, r.Define("innocent", with()))
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		for _, name := range []string{"a", "b", "closed", "d", "e"} {
			limiters[name] = b.Concurrency(name, one(limit))
		}
		return nil
	}))
	require.NoError(t, limiters["closed"].Close())
	for range 10 { // in any order
		limit = 7
		err := r.Reload(t.Context())
		assert.ErrorIs(t, err, limiter.ErrClosed)
		assert.ErrorContains(t, err, `"closed"`)
		assert.Equal(t, []string{"ReloadFailed orders"}, events.take())
		for name, l := range limiters {
			assert.Equal(t, 5, l.Limits().Permits, name)
		}
		for name, info := range r.Limiters() {
			assert.Equal(t, plain(one(5)), info.Options, name)
		}
	}
	limit = 5
	require.NoError(t, r.Reload(t.Context()))
}
