package weirredis

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
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
				require.Equal(t, newer.Version, batch.State.Version)
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

// A slot that stays half-moved, and one that no server has, make no server away.
func TestCluster_SlotIsNotTheServer(t *testing.T) {
	t.Parallel()
	client, nodes, _ := newClusterOf(t, 3)
	b := newTestBackend(t, client)
	var lost atomic.Int64
	s, err := store.New(b, &store.Options{NoListen: true, OnEvent: func(e store.Event) {
		if e.Kind == store.EventStoreLost {
			lost.Add(1)
		}
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := s.PartitionedFixedWindow("keys", limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}, nil)
	require.NoError(t, err)
	grants := func(key string) bool {
		t.Helper()
		lease, err := p.TryAcquire(t.Context(), key, 1)
		require.NoError(t, err)
		return lease.Acquired()
	}
	require.Eventually(t, func() bool { return grants("") }, 20*time.Second, 10*time.Millisecond)
	moving, unserved := samePlace("moving", 50), samePlace("unserved", 20)
	beginMove(t, client, nodes, b.places("keys").of(moving[0]).start)
	slot := client.ClusterKeySlot(t.Context(), b.places("keys").of(unserved[0]).start).Val()
	for _, node := range nodes {
		_ = node.ClusterDelSlots(t.Context(), int(slot)).Err() // some may not know who has it
	}
	for i := range 50 {
		require.True(t, grants(moving[i]), i)
		require.False(t, grants(unserved[i%len(unserved)]), i)
		require.True(t, grants(fmt.Sprint("other", i)), i)
	}
	require.NoError(t, s.Health().Err)
	require.Zero(t, lost.Load())
}
