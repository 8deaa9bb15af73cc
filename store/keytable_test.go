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
			lease, err := l.TryAcquire(w.ctx, key, 1)
			require.NoError(t, err)
			require.True(t, lease.Acquired(), "%q has a permit of its own", key)
		}
		require.Len(t, seen, len(keys))
	})
}

// Keys beyond maxKeys are answered by the store, and nothing is remembered of them.
func TestPartitioned_RememberedKeysAreBounded(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"cached": caching, "blocks": {Block: 10}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := must(w.instance(store.Options{}).PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 10), how))(t)
				store.PretendKeys(l, 100_000)
				for _, want := range []bool{true, false} {
					lease, err := l.TryAcquire(w.ctx, "new", 1)
					require.NoError(t, err)
					require.Equal(t, want, lease.Acquired())
				}
				lease, err := l.Acquire(w.ctx, "new", 1)
				require.NoError(t, err)
				require.Equal(t, limiter.ReasonQueueLimit, lease.Reason())
				store.PretendKeys(l, -100_000)
			})
		})
	}
}

// A closed limiter forgets its keys at once, with what it has borrowed for them, and learns of none any more.
func TestKeyTable_ClosedLimiter(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"cached": caching, "blocks": {Block: 10}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
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
			})
		})
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
	require.LessOrEqual(t, store.KeyStateBytes, uintptr(320))
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
