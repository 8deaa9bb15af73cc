package weirredis

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

// copiesAre reports whether all copies of a definition have a version.
func copiesAre(t *testing.T, b *Backend, name string, version int64) bool {
	t.Helper()
	for i := range numPlaces {
		text, err := b.client.Get(t.Context(), b.names.copyOf(name, i)).Result()
		if err != nil || len(text) < 8 || number(text, 0) != version {
			return false
		}
	}
	return true
}

// A process has set a definition and ended before it was copied. Another one that loads it copies it.
func TestLoad_CompletesCopies(t *testing.T) {
	b, client := shared(t)
	other := newTestBackend(t, client)
	other.names = b.names
	d := slots(1)
	done, err := b.Define(t.Context(), 0, d)
	require.NoError(t, err)
	require.True(t, done && copiesAre(t, b, d.Name, d.Version))
	next := *d
	next.Version++
	old := client.Get(t.Context(), b.names.copyOf(d.Name, 1)).Val()
	done, err = b.Define(t.Context(), d.Version, &next)
	require.NoError(t, err)
	require.True(t, done && copiesAre(t, b, d.Name, next.Version))
	for i := range numPlaces {
		if i != placeOf("") && i > numPlaces/2 { // the process has ended in the middle
			require.NoError(t, client.Set(t.Context(), b.names.copyOf(d.Name, i), old, 0).Err())
		}
	}
	_, _, err = other.Load(t.Context(), d.Name)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return copiesAre(t, b, d.Name, next.Version) }, 10*time.Second, 20*time.Millisecond)
}

// losesOnce loses the first pipeline about all copies.
type losesOnce struct{ lost atomic.Bool }

func (*losesOnce) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*losesOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *losesOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if len(commands) < numPlaces-1 || !h.lost.CompareAndSwap(false, true) {
			return next(ctx, commands)
		}
		for _, c := range commands {
			c.SetErr(net.ErrClosed)
		}
		return net.ErrClosed
	}
}

// The connection breaks while a definition is copied. The process that has set it copies it again.
func TestDefine_CompletesCopies(t *testing.T) {
	b, client := shared(t)
	client.AddHook(&losesOnce{})
	d := slots(1)
	done, err := b.Define(t.Context(), 0, d)
	require.NoError(t, err)
	require.True(t, done && !copiesAre(t, b, d.Name, d.Version))
	require.Eventually(t, func() bool { return copiesAre(t, b, d.Name, d.Version) }, 10*time.Second, 20*time.Millisecond)
}

// A server of a Cluster was away during a Define, and the process that called it is gone when the server is back.
func TestCluster_MissedDefinition(t *testing.T) {
	t.Parallel() // the servers mostly wait for each other
	client, _, servers := newClusterOf(t, 2)
	b, other := newTestBackend(t, client), newTestBackend(t, client)
	other.names = b.names
	d := slots(1)
	require.Eventually(t, func() bool {
		done, err := b.Define(t.Context(), 0, d)
		return err == nil && done
	}, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return copiesAre(t, b, d.Name, d.Version) }, 20*time.Second, 10*time.Millisecond)
	var away *testserver.Server
	for _, s := range servers {
		if s.Addr() != b.ShardOf(d.Name, "") {
			away = s
		}
	}
	load := func() *backend.Definition {
		found, _, err := other.Load(t.Context(), d.Name)
		require.NoError(t, err)
		return found
	}
	require.Equal(t, d.Version, load().Version)
	away.Kill()
	next := *d
	next.Version++
	done, err := b.Define(t.Context(), d.Version, &next)
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, b.Close())
	require.Equal(t, next.Version, load().Version)
	require.NoError(t, away.Restart(false))
	require.Eventually(t, func() bool {
		load()
		return copiesAre(t, other, d.Name, next.Version)
	}, 30*time.Second, 100*time.Millisecond)
}
