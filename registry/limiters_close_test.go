package registry_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func TestTokenBucket_InvalidOptions(t *testing.T) {
	for field, f := range map[string]registry.BuildFunc{
		"TokensPerPeriod": func(b *registry.Builder) error {
			l := b.TokenBucket("mine", limiter.TokenBucketOptions{TokenLimit: 1, ReplenishmentPeriod: 1})
			b.Add(ratelimit.New(l, nil)) // what is returned can be used to build on
			return nil
		},
		"Window": func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.FixedWindow("mine", limiter.FixedWindowOptions{PermitLimit: 1}), nil))
			return nil
		},
		"SegmentsPerWindow": func(b *registry.Builder) error {
			l := b.SlidingWindow("mine", limiter.SlidingWindowOptions{PermitLimit: 1, Window: 1})
			b.Add(ratelimit.New(l, nil))
			return nil
		},
		"PermitLimit": func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency("mine", limiter.ConcurrencyOptions{}), nil))
			return nil
		},
	} {
		var fi fickle
		r := open(t, nil)
		fi.do(f)
		err := r.Define("orders", fi.build)
		check := func() {
			t.Helper()
			assert.ErrorIs(t, err, limiter.ErrInvalidOptions)
			assert.ErrorContains(t, err, `"mine"`)
			assert.ErrorContains(t, err, field)
			assert.ErrorContains(t, err, "orders")
		}
		check()
		fi.calmDown()
		p := define(t, r, "orders", fi.build)
		fi.do(f)
		err = r.Reload(t.Context())
		check()
		versionOf(t, p)
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

// Who waits in the queue of a limiter gets what a reload gives it.
func TestTokenBucket_ReloadServesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		limit := 1
		p := define(t, r, "orders", func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency("l", one(limit)), nil))
			return nil
		})
		end := hold(t, p)
		done := make(chan error)
		go func() { done <- p.Execute(t.Context(), nothing) }()
		synctest.Wait()
		limit = 2
		require.NoError(t, r.Reload(t.Context()))
		assert.NoError(t, <-done)
		end()
	})
}

func TestTokenBucket_ClosedWithItsLastUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		limiters := make(map[string]*limiter.Concurrency)
		uses := map[string][]string{"a": {"shared", "of a"}, "b": {"shared", "of b"}}
		for name := range uses {
			require.NoError(t, r.Define(name, func(b *registry.Builder) error {
				for _, l := range uses[name] {
					limiters[l] = b.Concurrency(l, one(1))
				}
				return nil
			}))
		}
		check := func(what string, left ...string) {
			t.Helper()
			synctest.Wait()
			assert.Equal(t, len(left), r.OwnedLimiters(), what)
			var listed []string
			for name := range r.Limiters() {
				listed = append(listed, name)
			}
			assert.Equal(t, left, listed, what)
			for name, l := range limiters {
				assert.Equal(t, slices.Contains(left, name), isOpen(t, l), "%s: %s", what, name)
			}
		}
		check("at first", "of a", "of b", "shared")
		uses["a"] = []string{"shared"}
		require.NoError(t, r.Reload(t.Context()))
		check("a does without its own", "of b", "shared")
		require.NoError(t, r.Remove(t.Context(), "b"))
		check("b is removed", "shared")
		uses["a"] = nil
		require.NoError(t, r.Reload(t.Context(), "a"))
		check("a does without any")
	})
}

// OnDispose may close what the version owns itself (DP1).
func TestOnDispose_ClosesALimiterOfTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var all []*limiter.Concurrency
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			l := weir.Must(limiter.NewConcurrency(one(1)))
			all = append(all, l)
			b.OnDispose(l.Close)
			b.Add(ratelimit.New(l, nil))
			return nil
		}))
		require.NoError(t, r.Reload(t.Context()))
		synctest.Wait()
		assert.Equal(t, "[false true]", fmt.Sprint([]bool{isOpen(t, all[0]), isOpen(t, all[1])}))
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
			assert.Equal(t, 5, l.Options().PermitLimit, name)
		}
		for name, info := range r.Limiters() {
			assert.Equal(t, plain(one(5)), info.Options, name)
		}
	}
	limit = 5
	require.NoError(t, r.Reload(t.Context()))
}
