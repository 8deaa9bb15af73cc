package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

// sharing is a registry whose pipeline "orders" uses the limiter "l" in a store.
type sharing[O limiter.Options] struct {
	*registry.Registry
	heard overrideLog
	limit func(available bool) int
	o     O
}

func newSharing[O limiter.Options](t *testing.T, s *store.Store, o O, partitioned bool) *sharing[O] {
	t.Helper()
	x := &sharing[O]{o: o}
	x.Registry = open(t, &registry.Options{Listener: &x.heard})
	require.NoError(t, x.Define("orders", func(b *registry.Builder) error {
		if partitioned {
			p := registry.SharedPartitioned(b, s, "l", x.o, nil)
			x.limit = func(left bool) int {
				if left {
					st, err := p.Statistics("k")
					assert.NoError(t, err)
					return int(st.AvailablePermits)
				}
				return limitOf(weir.Must(p.Limits("k")))
			}
			return nil
		}
		l := registry.Shared(b, s, "l", x.o, nil)
		x.limit = func(left bool) int {
			if left {
				return available(l)
			}
			return limitOf(l.Limits())
		}
		return nil
	}))
	get(t, x.Registry, "orders")
	return x
}

func TestOverride_Shared(t *testing.T) {
	for _, partitioned := range []bool{false, true} {
		t.Run("token bucket", func(t *testing.T) { testOverrideShared(t, partitioned, bucketOptions) })
		t.Run("fixed window", func(t *testing.T) { testOverrideShared(t, partitioned, windowOptions) })
		t.Run("sliding window", func(t *testing.T) { testOverrideShared(t, partitioned, slidingOptions) })
		t.Run("concurrency", func(t *testing.T) { testOverrideShared(t, partitioned, one) })
	}
}

func testOverrideShared[O limiter.Options](t *testing.T, partitioned bool, options func(int) O) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		a, b := newSharing(t, c.s, options(10), partitioned), newSharing(t, c.other, options(10), partitioned)
		assert.Equal(t, 10, a.limit(true))
		assert.Equal(t, 10, b.limit(true))

		o, start := for1h(options(7)), time.Now()
		require.NoError(t, a.Override(t.Context(), o))
		synctest.Wait()
		o.Since = start
		for _, x := range []*sharing[O]{a, b} {
			assert.Equal(t, []string{"OnLimiterOverridden Warning l by ann because a sale"}, x.heard.take())
			assert.Equal(t, 7, x.limit(true))
			i := info(t, x.Registry)
			assert.Equal(t, registry.LimiterConfig{Limits: options(7).Limits()}, i.Options)
			assert.Equal(t, registry.LimiterConfig{Limits: options(10).Limits()}, i.Configured)
			require.NotNil(t, i.Override)
			assert.True(t, o.Since.Equal(i.Override.Since) && o.Until.Equal(i.Override.Until))
			assert.Equal(t, "ann", i.Override.By)
			assert.Equal(t, options(7), i.Override.Options)
		}

		// A reload keeps it; what it changes comes into force at the end.
		b.o = options(12)
		require.NoError(t, b.Reload(t.Context()))
		synctest.Wait()
		assert.Empty(t, b.heard.take())
		assert.Equal(t, 7, b.limit(true))
		assert.Equal(t, registry.LimiterConfig{Limits: options(12).Limits()}, info(t, b.Registry).Configured)
		assert.Equal(t, registry.LimiterConfig{Limits: options(7).Limits()}, info(t, b.Registry).Options)

		// It ends in time although the registry that has made it is closed.
		require.NoError(t, a.Close(t.Context()))
		assert.Empty(t, a.heard.take(), "it goes on")
		time.Sleep(time.Until(o.Until) - time.Microsecond)
		synctest.Wait()
		assert.Equal(t, 7, b.limit(false))
		time.Sleep(time.Microsecond)
		synctest.Wait()
		assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: its time is over"}, b.heard.take())
		assert.Equal(t, 12, b.limit(true))
		assert.Nil(t, info(t, b.Registry).Override)

		require.NoError(t, b.Override(t.Context(), for1h(options(3))))
		synctest.Wait()
		b.heard.take()
		require.NoError(t, b.EndOverride(t.Context(), "l", "bob"))
		synctest.Wait()
		assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: ended by bob"}, b.heard.take())
		assert.Equal(t, 12, b.limit(true))
		require.ErrorIs(t, b.EndOverride(t.Context(), "l", "bob"), registry.ErrNotOverridden)
	})
}

// A reload that removes the limiter leaves the override to other instances. One that changes its kind ends it.
func TestOverride_SharedEndsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		a, b := newSharing(t, c.s, bucketOptions(10), false), newSharing(t, c.other, bucketOptions(10), false)
		a.limit(true)
		require.NoError(t, b.Override(t.Context(), for1h(bucketOptions(7))))
		synctest.Wait()
		a.heard.take()
		b.heard.take()
		require.NoError(t, a.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{"orders": with()}}))
		synctest.Wait()
		assert.Equal(t, []string{"OnLimiterOverrideEnded Information l by ann because a sale: this registry does not use the limiter any more"}, a.heard.take())
		assert.Empty(t, b.heard.take())
		assert.Equal(t, 7, b.limit(true))

		require.NoError(t, b.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{"orders": func(bd *registry.Builder) error {
			registry.Shared(bd, c.other, "l", windowOptions(5), nil)
			return nil
		}}}))
		synctest.Wait()
		ended := b.heard.take()
		require.Len(t, ended, 1)
		assert.Contains(t, ended[0], "OnLimiterOverrideEnded Information l by ann because a sale: ")
		d, _, err := c.Load(t.Context(), "l")
		require.NoError(t, err)
		assert.NotContains(t, d.Terms, "override")
		assert.EqualValues(t, 5, d.Permits)
	})
}

func TestOverride_SharedErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		a := newSharing(t, c.s, bucketOptions(10), false)
		require.EqualError(t, a.Override(t.Context(), for1h(windowOptions(5))),
			"registry: Options must be a limiter.TokenBucketOptions, got a limiter.FixedWindowOptions")
		fine := bucketOptions(5)
		fine.ReplenishmentPeriod = time.Second + 1
		require.EqualError(t, a.Override(t.Context(), for1h(fine)),
			"registry: Options.ReplenishmentPeriod must be whole microseconds in a store, got 1.000000001s")
		c.Fail(errBoom)
		err := a.Override(t.Context(), for1h(bucketOptions(5)))
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.ErrorContains(t, err, `registry: overriding limiter "l": `)
		require.ErrorIs(t, a.EndOverride(t.Context(), "l", "ann"), store.ErrUnavailable)
		c.Fail(nil)
		synctest.Wait()
		time.Sleep(5 * time.Second)
		assert.Equal(t, 10, a.limit(true))
		assert.Nil(t, info(t, a.Registry).Override)
		assert.Empty(t, a.heard.take())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, a.Override(ctx, for1h(bucketOptions(5))), context.Canceled)
	})
}

// A reload does not wait for a store that is away while it overrides a limit.
func TestOverride_SharedHoldsUpNoReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		a := newSharing(t, c.s, limiter.TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}, false)
		a.limit(true)
		c.Stall(true)
		done := make(chan error)
		go func() { done <- a.Override(t.Context(), for1h(bucketOptions(7))) }()
		synctest.Wait()
		begun := time.Now()
		a.o.TokenLimit = 12
		require.NoError(t, a.Reload(t.Context()))
		assert.Zero(t, time.Since(begun))
		require.ErrorIs(t, <-done, store.ErrUnavailable)
		c.Stall(false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, 12, a.limit(true))
	})
}
