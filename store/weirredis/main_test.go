package weirredis

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }

// connect returns a client of a server, which is closed at the end of the test.
func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// shared returns a Backend on the server that all tests share, with a prefix of its own.
func shared(t testing.TB) (*Backend, *redis.Client) {
	t.Helper()
	client := connect(t, testserver.Redis(t).URL)
	return newTestBackend(t, client), client
}

func newTestBackend(t testing.TB, client redis.UniversalClient) *Backend {
	t.Helper()
	b, err := NewBackend(client, &BackendOptions{Prefix: freshPrefix()})
	require.NoError(t, err)
	return b
}

var prefixes atomic.Int64

func freshPrefix() string { return fmt.Sprintf("test%d", prefixes.Add(1)) }

// A steered Backend's clock can be set.
type steered struct {
	*Backend
	clockKey string
}

// newSteered makes a Backend whose scripts read their time from a key, if that is there.
func newSteered(t testing.TB, client redis.UniversalClient, prefix string) *steered {
	t.Helper()
	key := fmt.Sprintf("clock%d", prefixes.Add(1))
	b, err := newBackend(client, BackendOptions{Prefix: prefix}, clock{
		now: strings.ReplaceAll(`local t=redis.call('TIME')
local now=t[1]*1000000+t[2]
local set=redis.call('GET','KEY')
if set then now=tonumber(set) end`, "KEY", key),
		expiry: serverClock.expiry,
	})
	require.NoError(t, err)
	return &steered{b, key}
}

func (s *steered) setTime(t testing.TB, micros int64) {
	t.Helper()
	require.NoError(t, s.client.Set(context.Background(), s.clockKey, micros, 0).Err())
}

func takeOne(d *backend.Definition, key string) *backend.Batch {
	return &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
}
