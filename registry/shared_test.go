package registry_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// A cloud is a store, and a second instance that uses it.
type cloud struct {
	*storetest.Memory
	s, other *store.Store
}

// newCloud returns one that is closed after the registries that are made later.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{Memory: storetest.NewMemory()}
	for _, s := range []**store.Store{&c.s, &c.other} {
		made, err := store.New(c.Memory, nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, made.Close()) })
		*s = made
	}
	return c
}

// wants is what pipeline "orders" wants of its shared limiter "l".
type wants[O limiter.Options] struct {
	s   *store.Store
	o   O
	how store.LimiterOptions
	got *store.Limiter
	err error
}

func (w *wants[O]) build(b *registry.Builder) error {
	w.got = registry.Shared(b, w.s, "l", w.o, &w.how)
	return w.err
}

func isTaken(t *testing.T, l limiter.Limiter, n int) {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), n)
	require.NoError(t, err)
	require.True(t, lease.Acquired())
}

func TestShared_KeptAndReconfigured(t *testing.T) {
	t.Run("token bucket", func(t *testing.T) { testShared(t, bucketOptions) })
	t.Run("fixed window", func(t *testing.T) { testShared(t, windowOptions) })
	t.Run("sliding window", func(t *testing.T) { testShared(t, slidingOptions) })
	t.Run("concurrency", func(t *testing.T) { testShared(t, one) })
}

func testShared[O limiter.Options](t *testing.T, options func(int) O) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		elsewhere := open(t, nil)
		there := &wants[O]{s: c.other, o: options(10)}
		require.NoError(t, elsewhere.Define("orders", there.build))
		get(t, elsewhere, "orders")
		isTaken(t, there.got, 2)

		r := open(t, nil)
		w := &wants[O]{s: c.s, o: options(10)}
		require.NoError(t, r.Define("orders", w.build))
		first := w.got
		isTaken(t, first, 3)
		assert.Equal(t, 5, available(first))

		calls := c.Calls("Define")
		require.NoError(t, r.Reload(t.Context()))
		assert.Same(t, first, w.got)
		assert.Equal(t, calls, c.Calls("Define"), "the limits are the same")

		w.o = options(8)
		require.NoError(t, r.Reload(t.Context()))
		assert.Same(t, first, w.got)
		synctest.Wait()
		assert.Equal(t, 3, available(first), "no fresh burst")
		assert.Equal(t, 3, available(there.got), "the other instance follows")
		for name, info := range r.Limiters() {
			assert.Equal(t, "l", name)
			assert.Contains(t, info.Kind, "shared ")
			assert.Equal(t, registry.LimiterConfig{Limits: options(8).Limits()}, info.Options)
			assert.Same(t, first, info.Limiter)
		}

		require.NoError(t, r.Close(t.Context()))
		_, err := first.TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
		isTaken(t, there.got, 1)
	})
}

// A reload does not wait for the store, and does not fail without it.
func TestShared_ReconfiguredWhenTheStoreIsBack(t *testing.T) {
	for name, trouble := range map[string]struct{ begin, end func(*cloud) }{
		"away":    {func(c *cloud) { c.Fail(errBoom) }, func(c *cloud) { c.Fail(nil) }},
		"stalled": {func(c *cloud) { c.Stall(true) }, func(c *cloud) { c.Stall(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t)
				r := open(t, nil)
				w := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
				require.NoError(t, r.Define("orders", w.build))
				isTaken(t, w.got, 3)

				trouble.begin(c)
				w.o = bucketOptions(5)
				began := time.Now()
				require.NoError(t, r.Reload(t.Context()))
				assert.Zero(t, time.Since(began))
				w.o = bucketOptions(20)
				require.NoError(t, r.Reload(t.Context()))
				time.Sleep(time.Minute)
				trouble.end(c)
				time.Sleep(5 * time.Second)
				assert.Equal(t, 17, available(w.got), "the last that was wanted")
				assert.Equal(t, 20, w.got.Limits().Permits)
			})
		})
	}
}

// Nothing is said to the store that would have to be taken back.
func TestShared_FailedReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		r := open(t, nil)
		w := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
		work := &workshop{step: 1}
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			registry.Keep(b, "all", work.step, work.kept())
			return w.build(b)
		}))
		isTaken(t, w.got, 3)
		defined := c.Calls("Define")

		w.o, w.err = bucketOptions(5), errBoom
		require.ErrorIs(t, r.Reload(t.Context()), errBoom, "it cannot be built")
		w.how.Outage = store.FailOpen
		require.ErrorIs(t, r.Reload(t.Context()), errBoom, "it cannot be built, and would have had another limiter")
		w.how.Outage, w.err, work.step, work.made[0].refuse = 0, nil, 2, errBoom
		require.ErrorIs(t, r.Reload(t.Context()), errBoom, "something else refuses its options")
		time.Sleep(time.Minute)
		assert.Equal(t, defined, c.Calls("Define"))
		assert.Equal(t, 7, available(w.got))
	})
}

func TestShared_InvalidOptions(t *testing.T) {
	c := newCloud(t)
	for want, f := range map[string]func(b *registry.Builder){
		"s must not be nil": func(b *registry.Builder) { registry.Shared(b, nil, "l", bucketOptions(1), nil) },
		"TokenLimit":        func(b *registry.Builder) { registry.Shared(b, c.s, "l", bucketOptions(0), nil) },
		"Block": func(b *registry.Builder) {
			registry.Shared(b, c.s, "l", one(1), &store.LimiterOptions{Block: 9})
		},
		"LocalShare": func(b *registry.Builder) {
			registry.SharedPartitioned(b, c.s, "l", windowOptions(1), &store.LimiterOptions{LocalShare: 9})
		},
		"SegmentsPerWindow": func(b *registry.Builder) {
			registry.SharedPartitioned(b, c.s, "l", limiter.SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: 3600}, nil)
		},
		"ASCII":   func(b *registry.Builder) { registry.Shared(b, c.s, "l l", bucketOptions(1), nil) },
		"0 bytes": func(b *registry.Builder) { assert.Nil(t, registry.Shared(b, c.s, "", bucketOptions(1), nil)) },
	} {
		r := open(t, nil)
		err := r.Define("orders", func(b *registry.Builder) error { f(b); return nil })
		assert.ErrorIs(t, err, limiter.ErrInvalidOptions)
		assert.ErrorContains(t, err, want)
	}
	assert.Zero(t, c.Calls())
}

func TestShared_ClosedStore(t *testing.T) {
	c := newCloud(t)
	require.NoError(t, c.s.Close())
	r := open(t, nil)
	w := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
	err := r.Define("orders", w.build)
	assert.ErrorIs(t, err, limiter.ErrClosed)
	assert.ErrorContains(t, err, `limiter "l"`)
}

func TestShared_ConflictOfStores(t *testing.T) {
	c := newCloud(t)
	r := open(t, nil)
	a := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
	b := &wants[limiter.TokenBucketOptions]{s: c.other, o: bucketOptions(10)}
	require.NoError(t, r.Define("a", a.build))
	err := r.Define("b", b.build)
	conflicts(t, err)
	assert.ErrorContains(t, err, "in another store")
	b.s = c.s
	require.NoError(t, r.Define("b", b.build))
	assert.Same(t, a.got, b.got)
}

// A limiter in a store keeps nothing of the change that has made it.
func TestShared_KeepsNoChange(t *testing.T) {
	s := newCloud(t).s
	r := open(t, nil)
	apply := func(more []byte) weak.Pointer[byte] {
		require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"orders": func(b *registry.Builder) error {
			_ = more
			registry.Shared(b, s, "l", one(5), nil)
			b.OnDispose(func() error { clear(more); return nil })
			return nil
		}}}))
		return weak.Make(&more[0])
	}
	first := apply(make([]byte, 1<<10))
	apply(make([]byte, 1<<10))
	assert.Eventually(t, func() bool { runtime.GC(); return first.Value() == nil }, 10*time.Second, time.Millisecond)
}
