package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
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
			t.Run(fmt.Sprint(name, " ", noListen), subtest(func(t *testing.T, w *world) {
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
			}))
		}
	}
}

// Idle key states are evicted.
func TestKeyTable_Evicts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{NoListen: true})
		p := must(s.PartitionedTokenBucket("keys", bucketOf(1, 1, time.Second, 2), caching))(t)
		for i := range 3000 {
			_ = must(p.TryAcquire(w.ctx, fmt.Sprint(i), 1))(t)
			_ = must(p.TryAcquire(w.ctx, fmt.Sprint(i), 1))(t)
		}
		require.Equal(t, 3000, store.KeyStates(p))
		w.pass(12 * time.Second)
		require.Zero(t, store.KeyStates(p))
		_ = must(p.TryAcquire(w.ctx, "again", 1))(t)
		_ = must(p.TryAcquire(w.ctx, "again", 1))(t)
		require.Equal(t, 1, store.KeyStates(p))
		w.pass(12 * time.Second)
		require.Zero(t, store.KeyStates(p))
	})
}

// A key that looks like the stored form of a long key is another key.
func TestPartitioned_KeysDoNotCollide(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := must(w.instance(store.Options{}).PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 0), nil))(t)
		long := strings.Repeat("x", 300)
		sum := sha256.Sum256([]byte(long))
		seen := map[string]bool{}
		w.see = func(all []*backend.Batch) {
			for _, b := range all {
				require.LessOrEqual(t, len(b.Key), 200)
				seen[b.Key] = true
			}
		}
		keys := []string{long, "sha256:" + string(sum[:])}
		again := sha256.Sum256([]byte(keys[1]))
		keys = append(keys, "sha256:"+string(again[:]), "sha256:", strings.Repeat("y", 200))
		for _, key := range keys {
			lease := must(l.TryAcquire(w.ctx, key, 1))(t)
			require.True(t, lease.Acquired(), "%q has a permit of its own", key)
		}
		require.Len(t, seen, len(keys))
	})
}

// Keys beyond maxKeys are answered by the store, and nothing is remembered of them.
func TestPartitioned_RememberedKeysAreBounded(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"cached": caching, "blocks": {Block: 10}} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
			l := must(w.instance(store.Options{}).PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 10), how))(t)
			store.PretendKeys(l, 100_000)
			for _, want := range []bool{true, false} {
				lease := must(l.TryAcquire(w.ctx, "new", 1))(t)
				require.Equal(t, want, lease.Acquired())
			}
			lease := must(l.Acquire(w.ctx, "new", 1))(t)
			require.Equal(t, limiter.ReasonQueueLimit, lease.Reason())
			store.PretendKeys(l, -100_000)
		}))
	}
}

// A closed limiter forgets its keys at once, with what it has borrowed for them, and learns of none any more.
func TestKeyTable_ClosedLimiter(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"cached": caching, "blocks": {Block: 10}} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
			s := w.instance(store.Options{NoListen: true})
			p := must(s.PartitionedFixedWindow("it", limiter.FixedWindowOptions{PermitLimit: 40, Window: time.Hour, QueueLimit: 40}, how))(t)
			for key := range 100 {
				require.True(t, must(p.TryAcquire(w.ctx, fmt.Sprint(key), 1))(t).Acquired())
			}
			for _, n := range []int{30, 30} { // the second is rejected
				_ = must(p.TryAcquire(w.ctx, "0", n))(t)
			}
			var waiter limiter.Lease
			go func() { waiter, _ = p.Acquire(w.ctx, "0", 40) }()
			w.Delay(time.Second / 4)
			late := w.acquire(lateKey{p: p}, 1) // asks while the limiter is closed
			w.pass(time.Millisecond)
			require.NotZero(t, store.KeyStates(p))
			require.NoError(t, p.Close())
			require.Zero(t, store.KeyStates(p))
			synctest.Wait()
			require.Equal(t, limiter.ReasonClosed, waiter.Reason())
			w.pass(time.Second)
			require.True(t, late.done.Load())
			require.Zero(t, store.KeyStates(p))
			w.Delay(0)
			after := must(w.instance(store.Options{}).PartitionedFixedWindow("it", limiter.FixedWindowOptions{PermitLimit: 40, Window: time.Hour}, nil))(t)
			require.True(t, must(after.TryAcquire(w.ctx, "5", 39))(t).Acquired(), "what was borrowed is back")
		}))
	}
}

// A lateKey is a key of a partitioned limiter as a limiter.
type lateKey struct {
	limiter.Limiter
	p limiter.Partitioned[string]
}

func (l lateKey) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.p.Acquire(ctx, "late", n)
}

// docs/sizing.md and docs/bounds.md say what a key takes.
func TestKeyTable_KeyBytes(t *testing.T) {
	require.LessOrEqual(t, store.KeyStateBytes, uintptr(344))
}

// What a limiter remembers of a rejected key takes so much memory, and Close frees it.
func BenchmarkKeyTable_KeyBytes(b *testing.B) {
	const keys = 100_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for b.Loop() {
		m := storetest.NewMemory()
		s := newStore(b, m, store.Options{NoListen: true})
		o := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
		p, other := must(s.PartitionedFixedWindow("it", o, caching))(b), must(s.PartitionedFixedWindow("it", o, nil))(b)
		for key := range keys {
			must(other.TryAcquire(b.Context(), fmt.Sprint(key), 1))(b)
		}
		without := heap()
		for key := range keys {
			must(p.TryAcquire(b.Context(), fmt.Sprint(key), 1))(b)
		}
		with := heap()
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(with-without)/keys, "B/key")
		b.ReportMetric(float64(heap()-without)/keys, "B/key-closed")
		runtime.KeepAlive(m)
	}
}
