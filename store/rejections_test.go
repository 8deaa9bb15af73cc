package store_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store"
)

var _ custom.RejectionCounter = (*store.Partitioned)(nil)

// Rejections by the store, by what this instance remembers, by the queue and by the outage policy all count.
func TestTopRejected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		keyed := must(s.PartitionedTokenBucket("keyed", bucketOf(1, 1, time.Hour, 0), nil))(t)
		cached := must(s.PartitionedTokenBucket("cached", bucketOf(1, 1, time.Hour, 0), &store.LimiterOptions{CacheRejections: true}))(t)
		for _, p := range []*store.Partitioned{keyed, cached} {
			ask := func(key string, n int) {
				for range n {
					_ = must(p.TryAcquire(w.ctx, key, 1))(t)
					_ = must(p.Acquire(w.ctx, key, 1))(t)
				}
			}
			ask("before", 5)
			require.Empty(t, p.TopRejected(10))
			long := strings.Repeat("x", 300)
			ask("a", 3)
			ask(long, 2)
			_, err := p.TryAcquire(w.ctx, "a", -1)
			require.ErrorIs(t, err, limiter.ErrPermitCount)
			require.Equal(t, []limiter.KeyRejections{
				{Key: "a", Rejections: 5}, {Key: long[:197] + "…", Rejections: 3},
			}, p.TopRejected(10), "a long key by its text, not by the hash under which it is stored")
		}
		w.hooked.Fail(errDead)
		_ = must(keyed.TryAcquire(w.ctx, "a", 1))(t)
		require.Equal(t, []limiter.KeyRejections{{Key: "a", Rejections: 6}}, keyed.TopRejected(1))
		w.hooked.Fail(nil)

		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, keyed.TopRejected(1), "a minute after the last call")
		require.NoError(t, keyed.Close())
		require.Empty(t, keyed.TopRejected(1))
	})
}

func TestTopRejected_CountsWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := bucketOf(1, 1, time.Hour, 1)
		o.QueueOrder = limiter.NewestFirst
		keyed := must(w.instance(store.Options{}).PartitionedTokenBucket("keyed", o, nil))(t)
		long := strings.Repeat("x", 300)
		for range 2 {
			lease := must(keyed.TryAcquire(w.ctx, long, 1))(t)
			if !lease.Acquired() {
				break
			}
		}
		keyed.TopRejected(1)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = keyed.Acquire(w.ctx, long, 1) })
			synctest.Wait()
		}
		require.Equal(t, []limiter.KeyRejections{{Key: long[:197] + "…", Rejections: 1}}, keyed.TopRejected(1))
		w.pass(time.Hour + time.Second)
		wg.Wait()
	})
}
