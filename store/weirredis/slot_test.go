package weirredis

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// beginMove begins to move the slot of a place to another server, without its keys. It returns a function that moves one
// key.
func beginMove(t *testing.T, client *redis.ClusterClient, nodes []*redis.Client, place string) func(key string) {
	t.Helper()
	ctx := t.Context()
	slot := client.ClusterKeySlot(ctx, place).Val()
	source, err := client.MasterForKey(ctx, place)
	require.NoError(t, err)
	var target *redis.Client
	for _, node := range nodes {
		if node.Options().Addr != source.Options().Addr {
			target = node
		}
	}
	require.NoError(t, target.Do(ctx, "cluster", "setslot", slot, "importing", source.Do(ctx, "cluster", "myid").Val()).Err())
	require.NoError(t, source.Do(ctx, "cluster", "setslot", slot, "migrating", target.Do(ctx, "cluster", "myid").Val()).Err())
	host, port, err := net.SplitHostPort(target.Options().Addr)
	require.NoError(t, err)
	return func(key string) {
		require.Equal(t, "OK", source.Migrate(ctx, host, port, key, 0, 5*time.Second).Val(), key)
	}
}

// samePlace returns keys that are in the same place as the first, which is prefix followed by 0.
func samePlace(prefix string, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := prefix + strconv.Itoa(i); placeOf(key) == placeOf(prefix+"0") {
			keys = append(keys, key)
		}
	}
	return keys
}

// While a slot is being moved, a server can have the state of a key without the definition, or the definition without the
// state. Each key is decided all the same, and by the newest definition.
func TestCluster_SlotIsBeingMoved(t *testing.T) {
	t.Parallel()
	client, nodes, servers := newClusterOf(t, 3)
	app := redis.NewClusterClient(documentedUser(t, servers...).Cluster())
	t.Cleanup(func() { _ = app.Close() })
	for _, definitionMoves := range []bool{false, true} {
		t.Run(fmt.Sprintf("definitionMoves=%v", definitionMoves), func(t *testing.T) {
			b, err := NewBackend(app, &BackendOptions{Prefix: "weir:" + freshPrefix()})
			require.NoError(t, err)
			d, c := slowBucket(1000), slots(2)
			keys := samePlace(fmt.Sprint(definitionMoves), 6) // other slots than those of the other case
			at := b.places(d.Name).of(keys[0])
			for _, defined := range []*backend.Definition{d, c} {
				done, err := b.Define(t.Context(), 0, defined)
				require.NoError(t, err)
				require.True(t, done)
			}
			ask(t, b, d, keys[0], take(1))
			ask(t, b, d, keys[1], take(1))
			move := beginMove(t, client, nodes, at.start)
			move(at.states + keys[1])
			if definitionMoves {
				move(at.def.(string))
			}
			require.EqualValues(t, 2, ask(t, b, d, keys[0], take(1)).State.Missing, "the state is at the source")
			require.EqualValues(t, 2, ask(t, b, d, keys[1], take(1)).State.Missing, "the state has moved")
			require.EqualValues(t, 1, ask(t, b, d, keys[2], take(1)).State.Missing, "there is no state")
			require.EqualValues(t, 2, ask(t, b, d, keys[2], take(1)).State.Missing)
			batches := []*backend.Batch{takeOne(d, keys[0]), takeOne(d, keys[1]), takeOne(d, keys[3]), takeOne(d, "elsewhere")}
			require.NoError(t, b.Decide(t.Context(), batches))
			for i, missing := range []int64{3, 3, 1, 1} {
				require.Equal(t, backend.Decided, batches[i].Outcome, "%v", batches[i].Err)
				require.Equal(t, missing, batches[i].State.Missing)
			}

			newer := *d
			newer.Version++
			done, err := b.Define(t.Context(), d.Version, &newer)
			require.NoError(t, err)
			require.True(t, done)
			batches = []*backend.Batch{takeOne(d, keys[0]), takeOne(d, keys[1]), takeOne(d, keys[4])}
			require.NoError(t, b.Decide(t.Context(), batches))
			require.NoError(t, b.Decide(t.Context(), batches[2:]))
			for i, batch := range batches {
				require.Equal(t, backend.OutdatedDefinition, batch.Outcome, "%d: %v", i, batch.Err)
				require.Equal(t, newer.Version, batch.Version)
			}
			require.EqualValues(t, 1, ask(t, b, &newer, keys[5], take(1)).State.Missing)

			at = b.places(c.Name).of(keys[0])
			move = beginMove(t, client, nodes, at.start)
			if definitionMoves {
				move(at.def.(string))
			}
			lease := &backend.LeaseRequest{Definition: c, Key: keys[0], ID: "1", Permits: 1, TTL: 60_000_000}
			for _, step := range []func() error{
				func() error { return b.Acquire(t.Context(), []*backend.LeaseRequest{lease}) },
				func() error { return b.Renew(t.Context(), []*backend.LeaseRequest{lease}) },
				func() error { return b.Release(t.Context(), []*backend.LeaseRequest{lease}) },
			} {
				require.NoError(t, step())
				require.Equal(t, backend.Decided, lease.Outcome, "%v", lease.Err)
				require.True(t, lease.OK)
			}
			newer = *c
			newer.Version++
			_, err = b.Define(t.Context(), c.Version, &newer)
			require.NoError(t, err)
			lease = &backend.LeaseRequest{Definition: c, Key: keys[1], ID: "2", Permits: 1, TTL: 60_000_000}
			require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{lease}))
			require.Equal(t, backend.OutdatedDefinition, lease.Outcome)
			require.Equal(t, newer.Version, lease.Version)
		})
	}
}

// A slot that stays half-moved makes nothing away. Slots that no server has are away, and no server is.
func TestCluster_SlotIsNotTheServer(t *testing.T) {
	t.Parallel()
	client, nodes, _ := newClusterOf(t, 3)
	b := newTestBackend(t, client)
	var mu sync.Mutex
	lost := map[string]int{}
	s, err := store.New(b, &store.Options{NoListen: true, OnEvent: func(e store.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == store.EventStoreLost {
			lost[e.Shard]++
		}
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := s.PartitionedFixedWindow("keys", limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}, nil)
	require.NoError(t, err)
	ask := func(key string) limiter.Lease {
		t.Helper()
		lease, err := p.TryAcquire(t.Context(), key, 1)
		require.NoError(t, err)
		return lease
	}
	require.Eventually(t, func() bool { return ask("").Acquired() }, 20*time.Second, 10*time.Millisecond)
	slotOfKey := func(key string) int { return slotOf(b.places("keys").of(key).start) }
	require.EqualValues(t, client.ClusterKeySlot(t.Context(), b.places("keys").of("x").start).Val(), slotOfKey("x"))
	moving := samePlace("moving", 50)
	beginMove(t, client, nodes, b.places("keys").of(moving[0]).start)
	var unserved, served []string
	gone := map[int]bool{}
	for i := range 100 {
		key := fmt.Sprint("key", i)
		slot := slotOfKey(key)
		if stays := slot == slotOfKey(moving[0]) || slot == slotOfKey(""); !stays && len(gone) < 20 {
			gone[slot] = true
		}
		if gone[slot] {
			unserved = append(unserved, key)
		} else {
			served = append(served, key)
		}
	}
	lostSlots := slices.Collect(maps.Keys(gone))
	for _, node := range nodes {
		for _, slot := range lostSlots {
			_ = node.ClusterDelSlots(t.Context(), slot).Err() // some may not know who has it
		}
	}
	for i := range 50 {
		require.True(t, ask(moving[i]).Acquired(), i)
		require.False(t, ask(unserved[i%len(unserved)]).Acquired(), i)
		require.True(t, ask(served[i%len(served)]).Acquired(), i)
	}
	require.ErrorContains(t, s.Health().Err, "CLUSTERDOWN Hash slot not served")
	calls := s.Counters().Calls
	reason, _ := store.OutageKey.From(ask(unserved[0]))
	require.ErrorIs(t, reason, store.ErrUnavailable)
	require.ErrorContains(t, reason, unservedShard)
	require.LessOrEqual(t, s.Counters().Calls, calls+1, "only a probe can have asked meanwhile")
	for _, h := range s.Health().Shards {
		require.Equal(t, h.Shard == unservedShard, h.Err != nil, h)
	}

	require.NoError(t, nodes[0].ClusterAddSlots(t.Context(), lostSlots...).Err())
	require.Eventually(t, func() bool { return s.Health().Err == nil && ask(unserved[0]).Acquired() }, 20*time.Second, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, lost, 1, "no server counts as away: %v", lost)
	require.Positive(t, lost[unservedShard])
}

// Servers that name each other for a slot do not serve it.
func TestBackend_SlotThatNoServerTakes(t *testing.T) {
	moved := serverError("MOVED 7 127.0.0.1:7000")
	require.True(t, keyError(moved), "the server that was asked is not to blame")
	require.False(t, keyError(fmt.Errorf("%w: %w", errUnserved, moved)))
	b := &Backend{cluster: &redis.ClusterClient{}}
	set := func(err error) error {
		c := &call{args: []any{"evalsha", "", "1", "weir:{a:00}:def"}, cmd: redis.NewStringCmd(t.Context())}
		c.cmd.SetErr(err)
		return b.noteSlot(c)
	}
	require.NoError(t, set(serverError("WRONGTYPE")))
	require.NoError(t, set(moved))
	require.ErrorIs(t, set(moved), errUnserved)
	require.NoError(t, set(serverError("LOADING")), "another error says nothing about the slot")
	require.ErrorIs(t, set(moved), errUnserved)
	require.NoError(t, set(nil))
	require.NoError(t, set(moved))
	require.EqualValues(t, 1, b.unserved.count.Load())
}
