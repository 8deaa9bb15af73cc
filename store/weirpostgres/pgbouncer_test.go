package weirpostgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
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

// pgx gives notices to the function only. They would never arrive.
func TestListen_PoolWithOnNotification(t *testing.T) {
	t.Parallel()
	pool := connect(t, postgres(t).URL, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	})
	b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, pool)})
	require.ErrorIs(t, b.Listen(t.Context(), func() { t.Error("it is not ready") }, func(backend.Notice) {}), errors.ErrUnsupported)
}

// A session of a pooler in transaction mode that listens would give its notices to any client, and pgx keeps what nothing
// reads. Waiters poll.
func TestStore_NoStrayNoticesFromAPooler(t *testing.T) {
	t.Parallel()
	server := postgres(t)
	bouncer := testserver.NewPgBouncer(t, server, "default_pool_size = 3")
	schema := freshSchema(t, connect(t, server.URL, nil))
	var pools [2]*pgxpool.Pool
	var callers sync.WaitGroup
	var polls atomic.Int64
	end := time.Now().Add(3 * time.Second)
	for i := range pools {
		pools[i] = connect(t, bouncer.URL+"&default_query_exec_mode=exec", func(c *pgxpool.Config) { c.MaxConns = 4 })
		failed := make(chan error, 1)
		s, err := New(pools[i], &Options{Schema: schema, Options: store.Options{OnEvent: func(e store.Event) {
			if e.Kind == store.EventListenFailed {
				failed <- e.Err
			}
		}}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		l, err := s.Concurrency("slots", limiter.ConcurrencyOptions{PermitLimit: 2, QueueLimit: 10}, nil)
		require.NoError(t, err)
		for range 4 {
			callers.Go(func() {
				for time.Now().Before(end) {
					lease, err := l.Acquire(t.Context(), 1)
					if assert.NoError(t, err) && lease.Acquired() {
						polls.Add(1)
						lease.Release()
					}
				}
			})
		}
		t.Cleanup(func() { require.ErrorIs(t, <-failed, errors.ErrUnsupported) })
	}
	callers.Wait()
	require.Greater(t, polls.Load(), int64(20))
	stray := 0
	for _, pool := range pools {
		for _, conn := range pool.AcquireAllIdle(t.Context()) {
			for {
				now, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, err := conn.Conn().WaitForNotification(now)
				cancel()
				if err != nil {
					break
				}
				stray++
			}
			conn.Release()
		}
	}
	require.LessOrEqual(t, stray, len(pools), "at most that by which each store found out")
}
