package weirpostgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

func TestListen_PoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	server := postgres(t)
	bouncer := testserver.NewPgBouncer(t, server, "default_pool_size = 1")
	schema := freshSchema(t, connect(t, server.URL, nil))
	pool := connect(t, bouncer.URL+"&default_query_exec_mode=exec", nil)
	b := newBackend(t, pool, BackendOptions{Schema: schema})
	err := b.Listen(t.Context(), func() { t.Error("it is not ready") }, func(backend.Notice) {})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Zero(t, count(t, pool, "select count(*) from pg_listening_channels()"), "the pooler's only session does not listen")
}

func TestListen_PoolerInSessionMode(t *testing.T) {
	t.Parallel()
	server := postgres(t)
	bouncer := testserver.NewPgBouncer(t, server, "pool_mode = session")
	b := newBackend(t, connect(t, bouncer.URL, nil), BackendOptions{Schema: freshSchema(t, connect(t, server.URL, nil))})
	notices := listen(t, b)
	done, err := b.Define(t.Context(), 0, bucket(t, b, "a", 1, 1, 1))
	require.NoError(t, err)
	require.True(t, done)
	assert.Equal(t, backend.Notice{Name: "a"}, <-notices)
}

// A network that pauses for longer than a notice is waited for is no pooler.
func TestListen_NoticeComesLate(t *testing.T) {
	t.Parallel()
	server := postgres(t)
	proxy := testserver.NewProxy(t, server.Addr())
	conn, err := connect(t, strings.Replace(server.URL, server.Addr(), proxy.Addr(), 1), nil).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	pool := connect(t, server.URL, func(c *pgxpool.Config) {
		c.BeforeAcquire = func(context.Context, *pgx.Conn) bool {
			proxy.Delay(echoWait * 5 / 4)
			time.AfterFunc(echoWait/2, func() { proxy.Delay(0) })
			return true
		}
	})
	b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, connect(t, server.URL, nil))})
	require.NoError(t, b.echo(t.Context(), conn.Conn()))
}

// pgx gives notices to the function only. They would never arrive.
func TestListen_PoolWithOnNotification(t *testing.T) {
	t.Parallel()
	pool := connect(t, postgres(t).URL, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	})
	b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, pool)})
	require.ErrorIs(t, b.Listen(t.Context(), func() { t.Error("it is not ready") }, func(backend.Notice) {}), errors.ErrUnsupported)
}
