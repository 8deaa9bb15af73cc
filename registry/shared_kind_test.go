package registry_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

// Another store, way of sharing or kind makes another limiter, beside the old one as long as
// that is in use.
func TestShared_OtherStoreOrOptions(t *testing.T) {
	for name, change := range map[string]func(c *cloud, w *wants[limiter.TokenBucketOptions]){
		"outage": func(_ *cloud, w *wants[limiter.TokenBucketOptions]) { w.how.Outage = store.FailOpen },
		"block":  func(_ *cloud, w *wants[limiter.TokenBucketOptions]) { w.how.Block = 4 },
		"store":  func(c *cloud, w *wants[limiter.TokenBucketOptions]) { w.s = c.other },
		"outage and limits": func(_ *cloud, w *wants[limiter.TokenBucketOptions]) {
			w.how.Outage, w.o.QueueLimit = store.FailOpen, 7
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(t)
				r := open(t, nil)
				w := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
				p := define(t, r, "orders", w.build)
				end := hold(t, p)
				old := w.got
				isTaken(t, old, 3)

				before := *w
				change(c, w)
				require.NoError(t, r.Reload(t.Context()))
				require.NotSame(t, old, w.got)
				isTaken(t, w.got, 2)
				isTaken(t, old, 1)
				assert.Equal(t, 4, available(old), "both take from the same")
				assert.Equal(t, 2, r.OwnedLimiters())

				// Back while the old one is in use still: it is the old one.
				changed := w.got
				w.s, w.o, w.how = before.s, before.o, before.how
				require.NoError(t, r.Reload(t.Context()))
				assert.Same(t, old, w.got)
				end()
				synctest.Wait()
				assert.Equal(t, 1, r.OwnedLimiters())
				_, err := changed.TryAcquire(t.Context(), 1)
				require.ErrorIs(t, err, limiter.ErrClosed)
				isTaken(t, old, 1)
			})
		})
	}
}

// The reload sets what is in force in the store, also if that kind and its limits were in force before.
func TestShared_OtherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		r := open(t, nil)
		var l limiter.Limiter
		bucket := func(b *registry.Builder) { l = registry.Shared(b, c.s, "l", bucketOptions(20), nil) }
		window := func(b *registry.Builder) { l = registry.Shared(b, c.s, "l", windowOptions(20), nil) }
		sliding := func(b *registry.Builder) { l = registry.Shared(b, c.s, "l", slidingOptions(20), nil) }
		keyed := func(b *registry.Builder) {
			l = partitionOf{registry.SharedPartitioned(b, c.s, "l", slidingOptions(20), nil)}
		}
		seats := func(b *registry.Builder) { l = registry.Shared(b, c.s, "l", one(20), nil) }
		local := func(b *registry.Builder) { l = b.TokenBucket("l", bucketOptions(20)) }
		var now func(b *registry.Builder)
		build := func(b *registry.Builder) error { now(b); return nil }
		now = bucket
		p := define(t, r, "orders", build)
		for i, step := range []struct {
			build func(b *registry.Builder)
			kind  rate.Kind // in the store
		}{
			{bucket, rate.TokenBucket},
			{window, rate.FixedWindow},
			{bucket, rate.TokenBucket},
			{sliding, rate.SlidingWindow},
			{keyed, rate.SlidingWindow},
			{seats, rate.Concurrency},
			{local, rate.Concurrency},
			{bucket, rate.TokenBucket},
			{seats, rate.Concurrency},
			{window, rate.FixedWindow},
		} {
			now = step.build
			end := hold(t, p) // keeps the old one
			require.NoError(t, r.Reload(t.Context()))
			isTaken(t, l, 1)
			d, _, err := c.Load(t.Context(), "l")
			require.NoError(t, err)
			assert.Equal(t, step.kind, d.Kind, "step %d", i)
			end()
			synctest.Wait()
			assert.Equal(t, 1, r.OwnedLimiters())
			isTaken(t, l, 1)
		}
	})
}

// Another instance's limits stay where a reload changes only how the permits are shared.
func TestShared_OtherOptionsSetNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		r := open(t, nil)
		w := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
		require.NoError(t, r.Define("orders", w.build))
		isTaken(t, w.got, 1)
		there, err := c.other.TokenBucket("l", bucketOptions(10), nil)
		require.NoError(t, err)
		require.NoError(t, there.Reconfigure(bucketOptions(20)))
		w.how.Outage = store.FailOpen
		require.NoError(t, r.Reload(t.Context()))
		isTaken(t, w.got, 1)
		assert.Equal(t, 20, w.got.Limits().Permits)
	})
}

// partitionOf is one key of a partitioned limiter.
type partitionOf struct{ *store.Partitioned }

func (p partitionOf) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.Partitioned.TryAcquire(ctx, "ann", n)
}

func (p partitionOf) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.Partitioned.Acquire(ctx, "ann", n)
}
