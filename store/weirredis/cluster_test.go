package weirredis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

// newCluster starts a Cluster of two servers without replicas, which share the slots.
func newCluster(t *testing.T) (*redis.ClusterClient, []*redis.Client) {
	t.Helper()
	client, nodes, _ := newClusterOf(t, 2)
	return client, nodes
}

// newClusterOf starts a Cluster of n servers without replicas, each of which goes on while others are away.
func newClusterOf(t *testing.T, n int) (*redis.ClusterClient, []*redis.Client, []*testserver.Server) {
	t.Helper()
	var servers []*testserver.Server
	var nodes []*redis.Client
	var addrs []string
	var bus []string
	for range n {
		port := freePort(t)
		server := testserver.NewRedis(t, "--cluster-enabled", "yes", "--cluster-port", port, "--cluster-require-full-coverage", "no")
		servers, nodes = append(servers, server), append(nodes, connect(t, server.URL))
		addrs, bus = append(addrs, server.Addr()), append(bus, port)
	}
	ctx := t.Context()
	for i, node := range nodes {
		require.NoError(t, node.ClusterAddSlotsRange(ctx, 16384*i/n, 16384*(i+1)/n-1).Err())
		require.NoError(t, node.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		host, port, err := net.SplitHostPort(addrs[i])
		require.NoError(t, err)
		if i > 0 {
			require.NoError(t, nodes[0].Do(ctx, "cluster", "meet", host, port, bus[i]).Err())
		}
	}
	for _, node := range nodes {
		require.Eventually(t, func() bool {
			return strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok") &&
				strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_slots_ok:16384")
		}, 30*time.Second, 20*time.Millisecond)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client, nodes, servers
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func TestCluster(t *testing.T) {
	client, nodes := newCluster(t)
	b := newTestBackend(t, client)

	t.Run("decisions of many slots in one call", func(t *testing.T) {
		d := slowBucket(1000)
		many := func() []*backend.Batch {
			batches := make([]*backend.Batch, 200)
			for i := range batches {
				batches[i] = takeOne(d, strconv.Itoa(i))
			}
			return batches
		}
		require.NoError(t, b.Decide(t.Context(), many()), "no server knows the script")
		require.NoError(t, nodes[1].ScriptFlush(t.Context()).Err())
		require.NoError(t, b.Decide(t.Context(), many()), "one server does not know the script")
		for i := range 200 {
			require.EqualValues(t, 3, ask(t, b, d, strconv.Itoa(i), take(1)).State.Missing, i)
		}
		for _, node := range nodes {
			require.Greater(t, node.DBSize(t.Context()).Val(), int64(20), "the keys are on both servers")
		}
	})

	t.Run("odd names and keys", func(t *testing.T) {
		d := slots(1)
		for i, name := range []string{"", "}", "{}", "{a}", "a:b", "%7D", "}{"} {
			d.Name = name
			h := &backend.LeaseRequest{Definition: d, Key: name, ID: fmt.Sprint(i), Permits: 1, TTL: 60_000_000}
			require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
			require.True(t, h.OK, name)
			require.NoError(t, b.Release(t.Context(), []*backend.LeaseRequest{h}))
			require.True(t, h.OK, name)
		}
	})

	t.Run("notices from every server", func(t *testing.T) {
		l := listen(t, b)
		for i := range 20 {
			d := slots(1)
			d.Name = fmt.Sprint("notice", i)
			done, err := b.Define(t.Context(), 0, d)
			require.NoError(t, err)
			require.True(t, done)
			l.hears(t, backend.Notice{Name: d.Name})
			loaded, now, err := b.Load(t.Context(), d.Name)
			require.NoError(t, err)
			require.Equal(t, d, loaded)
			require.WithinDuration(t, time.Now(), time.UnixMicro(now), 10*time.Second)
		}
		l.cancel()
		require.Error(t, l.end(t))
	})

	t.Run("a slot that has moved", func(t *testing.T) {
		d := slowBucket(1000)
		d.Name = "moves"
		ask(t, b, d, "k", take(1))
		moveSlot(t, client, nodes, b.names.state(d.Name, "k"))
		require.EqualValues(t, 1, ask(t, b, d, "k", take(1)).State.Missing, "the other server has nothing of it")
		moveSlot(t, client, nodes, b.names.state(d.Name, "k"))
		batches := []*backend.Batch{takeOne(d, "k"), takeOne(d, "l"), takeOne(d, "m")}
		require.NoError(t, b.Decide(t.Context(), batches))
		require.EqualValues(t, 1, batches[0].State.Missing, "a server drops what is in a slot that it gives away")
	})
}

// moveSlot gives the slot of a key to the other server, without its keys.
func moveSlot(t *testing.T, client *redis.ClusterClient, nodes []*redis.Client, key string) {
	t.Helper()
	ctx := t.Context()
	slot := client.ClusterKeySlot(ctx, key).Val()
	ids := []string{nodes[0].Do(ctx, "cluster", "myid").Val().(string), nodes[1].Do(ctx, "cluster", "myid").Val().(string)}
	to := 0
	if err := nodes[1].Get(ctx, key).Err(); err != nil && strings.HasPrefix(err.Error(), "MOVED") {
		to = 1
	}
	require.NoError(t, nodes[to].Do(ctx, "cluster", "setslot", slot, "importing", ids[1-to]).Err())
	require.NoError(t, nodes[to].Do(ctx, "cluster", "setslot", slot, "node", ids[to]).Err())
	// The other one refuses while it has keys of the slot.
	require.Eventually(t, func() bool {
		return nodes[1-to].Do(ctx, "cluster", "setslot", slot, "node", ids[to]).Err() == nil ||
			strings.HasPrefix(fmt.Sprint(nodes[1-to].Get(ctx, key).Err()), "MOVED")
	}, 10*time.Second, 20*time.Millisecond)
}
