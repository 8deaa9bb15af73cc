package weirredis

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// beginMove begins to move the slot of a place to another server, without its keys.
func beginMove(t *testing.T, client *redis.ClusterClient, nodes []*redis.Client, place string) {
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
}

// Keys that cannot be decided because their slot is being moved, or because no server has it, make no server away.
func TestCluster_SlotIsNotTheServer(t *testing.T) {
	t.Parallel()
	client, nodes, servers := newClusterOf(t, 3)
	app := redis.NewClusterClient(documentedUser(t, servers...).Cluster())
	t.Cleanup(func() { _ = app.Close() })
	b, err := NewBackend(app, &BackendOptions{Prefix: "weir:" + freshPrefix()})
	require.NoError(t, err)
	s, err := store.New(b, &store.Options{NoListen: true})
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
	slotOf := func(key string) int64 {
		return client.ClusterKeySlot(t.Context(), b.places("keys").of(key).start).Val()
	}
	require.Eventually(t, func() bool { return ask("").Acquired() }, 20*time.Second, 10*time.Millisecond)
	moving, lost := "moving", "lost"
	require.Len(t, map[int64]bool{slotOf(""): true, slotOf(moving): true, slotOf(lost): true}, 3)
	require.True(t, ask(moving).Acquired())
	beginMove(t, client, nodes, b.places("keys").of(moving).start)
	for _, node := range nodes {
		_ = node.ClusterDelSlots(t.Context(), int(slotOf(lost))).Err() // some may not know who has it
	}
	decided := 0
	for i := range 50 {
		require.True(t, ask(moving).Acquired() == (i < 9), "its state and its definition are at the source")
		reason, without := store.OutageKey.From(ask(lost))
		require.True(t, without)
		require.ErrorContains(t, reason, "CLUSTERDOWN Hash slot not served")
		if key := fmt.Sprint("key", i); slotOf(key) != slotOf(lost) && slotOf(key) != slotOf(moving) {
			require.True(t, ask(key).Acquired(), key)
			decided++
		}
	}
	require.Positive(t, decided)
	require.NoError(t, s.Health().Err)
	require.NoError(t, nodes[0].ClusterAddSlots(t.Context(), int(slotOf(lost))).Err())
	require.Eventually(t, func() bool { return ask(lost).Acquired() }, 20*time.Second, 10*time.Millisecond)
}

// Servers that name each other for a slot do not serve it. The server that was asked is not to blame.
func TestKeyError_SlotThatNoServerTakes(t *testing.T) {
	require.True(t, keyError(serverError("MOVED 7 127.0.0.1:7000")))
	require.False(t, keyError(serverError("LOADING")))
}
