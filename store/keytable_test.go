package store_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
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
