package store_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

var caching = &store.LimiterOptions{CacheRejections: true}

func TestCacheRejections_NoCall(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Second, 0, caching)
		w.granted(l, 10)
		w.rejected(l, 1)
		calls := w.Calls()
		for left := time.Second; left > 0; left -= 125 * time.Millisecond {
			d, ok := w.rejected(l, 1).RetryAfter()
			require.True(t, ok)
			require.Equal(t, left, d)
			w.rejected(l, 3)
			if left > 125*time.Millisecond {
				w.pass(125 * time.Millisecond)
			}
		}
		w.pass(125*time.Millisecond - 1)
		w.rejected(l, 1)
		require.Equal(t, calls, w.Calls(), "no call before time has restored something")
		w.pass(1)
		w.granted(l, 1)
		require.Equal(t, calls+1, w.Calls())
	})
}

func TestCacheRejections_FewerPermits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Second, 0, caching)
		w.granted(l, 7)
		w.rejected(l, 5)
		w.rejected(l, 6)
		w.granted(l, 0)
		w.granted(l, 3)
		w.rejected(l, 0)
	})
}

// A remembered rejection is for waiting callers, too. They are served when time has restored permits.
func TestCacheRejections_Waiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Second, 5, caching)
		w.granted(l, 10)
		w.rejected(l, 1)
		calls := w.Calls("Decide")
		a := w.acquire(l, 1)
		w.pass(time.Second - 1)
		w.waits(a)
		require.Equal(t, calls, w.Calls("Decide"))
		w.pass(1)
		w.served(a)
		require.Equal(t, calls+1, w.Calls("Decide"))
	})
}

func TestCacheRejections_NoAllocation(t *testing.T) {
	s := newStore(t, storetest.NewMemory(), store.Options{})
	p := must(s.PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 0), caching))(t)
	ctx := t.Context()
	_ = must(p.TryAcquire(ctx, "key", 1))(t)
	_ = must(p.TryAcquire(ctx, "key", 1))(t)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if lease, err := p.TryAcquire(ctx, "key", 1); err != nil || lease.Acquired() {
			t.Error("granted")
		}
	}))
}

func BenchmarkCachedRejection(b *testing.B) {
	s := must(store.New(storetest.NewMemory(), nil))(b)
	defer s.Close()
	var p limiter.Partitioned[string] = must(s.PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 0), caching))(b)
	ctx := b.Context()
	for b.Loop() {
		_, _ = p.TryAcquire(ctx, "key", 1)
	}
}

// A raise at another instance ends remembered rejections: at once with a notice, else with the next refresh.
func TestCacheRejections_Raise(t *testing.T) {
	hour := func(limit int) limiter.FixedWindowOptions {
		return limiter.FixedWindowOptions{PermitLimit: limit, Window: time.Hour}
	}
	for name, how := range map[string]*store.LimiterOptions{"cached": caching, "blocks": {Block: 5}} {
		for _, noListen := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", noListen), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					a := must(w.instance(store.Options{}).FixedWindow("it", hour(10), nil))(t)
					b := must(w.instance(store.Options{NoListen: noListen}).FixedWindow("it", hour(10), how))(t)
					w.granted(a, 1)
					for range 9 {
						w.granted(b, 1)
					}
					w.rejected(b, 1)
					require.NoError(t, a.Reconfigure(hour(100)))
					synctest.Wait()
					took := timed(func() {
						for !w.try(b, 1).Acquired() {
							w.pass(50 * time.Millisecond)
						}
					})
					if noListen {
						require.LessOrEqual(t, took, 10*time.Second+50*time.Millisecond)
					} else {
						require.Zero(t, took)
					}
				})
			})
		}
	}
}
