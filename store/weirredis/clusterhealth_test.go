package weirredis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// One server of a Cluster that is killed or stopped takes away the keys that it has, and no others.
func TestCluster_OneServerIsAway(t *testing.T) {
	drill.Apart(t, func() {
		client, _, servers := newClusterOf(t, 3)
		b := newTestBackend(t, client)
		var mu sync.Mutex
		var events []store.Event
		s, err := store.New(b, &store.Options{CallTimeout: 2 * time.Second, OnEvent: func(e store.Event) {
			mu.Lock()
			defer mu.Unlock()
			if events = append(events, e); e.Kind == store.EventStoreLost || e.Kind == store.EventStoreRecovered {
				t.Log(e.Kind, e.Shard, e.Away, e.Err)
			}
		}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		p, err := s.PartitionedTokenBucket("keys", limiter.TokenBucketOptions{TokenLimit: 1_000_000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}, nil)
		require.NoError(t, err)
		ask := func(key string) bool {
			lease, err := p.TryAcquire(t.Context(), key, 1)
			require.NoError(t, err)
			return lease.Acquired()
		}
		keysOf := map[string][]string{}
		require.Eventually(t, func() bool { return ask("") }, 20*time.Second, 10*time.Millisecond)
		for i := range 300 {
			key := fmt.Sprint(i)
			part := b.ShardOf("keys", key)
			keysOf[part] = append(keysOf[part], key)
		}
		require.Len(t, keysOf, 3)
		definition := b.ShardOf("keys", "")

		for _, stops := range []bool{true, false} {
			for i, server := range servers {
				if testing.Short() && (i == 0) != stops {
					continue
				}
				away := server.Addr()
				what := fmt.Sprintf("%s stops %v, has the definition %v", away, stops, away == definition)
				begin(server, stops)
				require.Eventually(t, func() bool { ask(keysOf[away][0]); return s.Health().Err != nil }, 30*time.Second, time.Millisecond, what)
				granted, refused := map[string]int{}, map[string]int{}
				var all sync.WaitGroup
				for part, keys := range keysOf {
					all.Go(func() {
						n, not := 0, 0
						for i := range 2000 {
							if ask(keys[i%len(keys)]) {
								n++
							} else {
								not++
							}
						}
						mu.Lock()
						defer mu.Unlock()
						granted[part], refused[part] = n, not
					})
				}
				all.Wait()
				for part := range keysOf {
					if part == away {
						require.Zero(t, granted[part], what)
					} else {
						require.Zero(t, refused[part], what)
					}
				}
				for _, h := range s.Health().Shards {
					require.Equal(t, h.Shard == away, h.Err != nil, what)
				}
				// A program that starts meanwhile finds the definition elsewhere.
				another, err := store.New(b, &store.Options{NoListen: true, CallTimeout: 30 * time.Second})
				require.NoError(t, err)
				late, err := another.PartitionedTokenBucket("keys", limiter.TokenBucketOptions{TokenLimit: 1_000_000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}, nil)
				require.NoError(t, err)
				for part, keys := range keysOf {
					if part != away {
						lease, err := late.TryAcquire(t.Context(), keys[0], 1)
						require.NoError(t, err)
						reason, _ := store.OutageKey.From(lease)
						require.True(t, lease.Acquired(), "%s: %v", what, reason)
					}
				}
				require.NoError(t, another.Close())
				end(t, server, stops)
				require.Eventually(t, func() bool { return s.Health().Err == nil }, 30*time.Second, 10*time.Millisecond, what)
				require.Eventually(t, func() bool { return ask(keysOf[away][0]) }, 30*time.Second, 10*time.Millisecond, what)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		lost := map[string]int{}
		for _, e := range events {
			if e.Kind == store.EventStoreLost {
				lost[e.Shard]++
			}
		}
		for _, server := range servers {
			require.LessOrEqual(t, lost[server.Addr()], 3, "it does not flap")
			require.GreaterOrEqual(t, lost[server.Addr()], 1)
		}
	})
}

func begin(server *testserver.Server, stops bool) {
	if stops {
		server.Pause()
	} else {
		server.Kill()
	}
}

func end(t *testing.T, server *testserver.Server, stops bool) {
	t.Helper()
	if stops {
		server.Resume()
		return
	}
	require.NoError(t, server.Restart(false)) // it keeps which slots it has
}
