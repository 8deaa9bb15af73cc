package weirredis

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// A call has time for two round trips, and not for the connection's greetings as well.
func TestStore_ConnectsOverALongDistance(t *testing.T) {
	drill.Apart(t, func() {
		const callTimeout = time.Second
		for _, heeds := range []bool{false, true} {
			t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", heeds), func(t *testing.T) {
				proxy := testserver.NewProxy(t, testserver.Redis(t).Addr())
				proxy.Delay(callTimeout * 2 / 5 / 2) // in each direction
				client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: heeds, PoolSize: 8})
				defer func() { _ = client.Close() }()
				s, err := New(client, &Options{Prefix: freshPrefix(), Options: store.Options{CallTimeout: callTimeout, NoListen: true}})
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close()) }()
				l, err := s.FixedWindow("a", limiter.FixedWindowOptions{PermitLimit: 1 << 20, Window: time.Hour}, nil)
				require.NoError(t, err)
				inARow := 0
				require.Eventually(t, func() bool {
					lease, err := l.TryAcquire(t.Context(), 1)
					require.NoError(t, err)
					if inARow++; !lease.Acquired() {
						inARow = 0
					}
					assert.LessOrEqual(t, proxy.Connections(), 8)
					return inARow == 3
				}, time.Minute, time.Millisecond)
			})
		}
	})
}

// A badHook does something bad for each command.
type badHook func()

func (badHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h badHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		h()
		return nil
	}
}

func (badHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// go-redis greets the servers of a Cluster on goroutines of its own.
func TestBackend_GreetsAClusterWithHooksThatMisbehave(t *testing.T) {
	for name, misbehave := range map[string]func(){"panic": func() { panic("bad") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClusterClient(&redis.ClusterOptions{
				ContextTimeoutEnabled: true,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{
						{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
						{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:2"}}},
					}, nil
				},
			})
			defer func() { _ = client.Close() }()
			var greeted atomic.Int64
			client.OnNewNode(func(server *redis.Client) {
				server.AddHook(badHook(func() {
					greeted.Add(1)
					misbehave()
				}))
			})
			newTestBackend(t, client).warmUp(t.Context())
			require.EqualValues(t, 2, greeted.Load())
		})
	}
}
