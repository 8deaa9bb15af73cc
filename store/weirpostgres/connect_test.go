package weirpostgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// A call has time for two round trips, and not for the handshake and the preparation of a statement.
func TestStore_ConnectsOverALongDistance(t *testing.T) {
	const callTimeout = time.Second
	server := testserver.Postgres(t)
	schema := freshSchema(t, connect(t, server.URL, nil))
	proxy := testserver.NewProxy(t, server.Addr())
	proxy.Delay(callTimeout * 2 / 5 / 2) // in each direction
	pool := connect(t, strings.Replace(server.URL, server.Addr(), proxy.Addr(), 1), func(c *pgxpool.Config) { c.MaxConns = 4 })
	s, err := New(pool, Options{Schema: schema, NoSweep: true, Options: store.Options{CallTimeout: callTimeout, NoListen: true}})
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
		assert.LessOrEqual(t, proxy.Connections(), 5)
		return inARow == 3
	}, time.Minute, time.Millisecond)
}

// What a program with the same pool does to the prepared statements costs one call.
func TestBackend_StatementsAreDeallocated(t *testing.T) {
	server := testserver.Postgres(t)
	pool := connect(t, server.URL, func(c *pgxpool.Config) { c.MaxConns = 1 })
	b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, pool), NoSweep: true})
	d := bucket(t, b, "a", 5, 1, 3_600_000_000)
	ask := func() error { return b.Decide(t.Context(), []*store.Batch{take(d, "k", 1)}) }
	require.NoError(t, ask())
	exec(t, pool, "deallocate all")
	_ = ask()
	require.NoError(t, ask())
}
