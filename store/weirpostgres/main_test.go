package weirpostgres

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }

// connect returns a pool, closed at the end of the test. configure may be nil.
func connect(t testing.TB, url string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = 8
	}
	if configure != nil {
		configure(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// postgres returns the server that all tests share, also those in processes of their own: see drill.Apart.
func postgres(t testing.TB) *testserver.Server {
	t.Helper()
	server := testserver.Postgres(t)
	require.NoError(t, os.Setenv("WEIR_POSTGRES_URL", server.URL)) //nolint:usetesting // also for later tests
	return server
}

var schemas atomic.Int64

// freshSchema migrates a schema of the test's own, dropped at its end.
func freshSchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	schema := newSchemaName(t, pool)
	require.NoError(t, Migrate(context.Background(), pool, schema))
	return schema
}

func newSchemaName(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	schema := fmt.Sprintf("Test_%d_%d", os.Getpid(), schemas.Add(1)) // with a capital: it must be quoted everywhere
	drop := func() {
		_, err := pool.Exec(context.Background(), `drop schema if exists "`+schema+`" cascade`)
		require.NoError(t, err)
	}
	drop() // what another process has left in a server that an environment variable named
	t.Cleanup(drop)
	return schema
}

// newBackend returns a Backend that does not sweep by itself unless the options are given.
func newBackend(t testing.TB, pool *pgxpool.Pool, o BackendOptions) *Backend {
	t.Helper()
	b, err := NewBackend(pool, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// shared returns a Backend on the server that all tests share, with a schema of its own.
func shared(t testing.TB) (*Backend, *pgxpool.Pool) {
	t.Helper()
	pool := connect(t, postgres(t).URL, nil)
	return newBackend(t, pool, BackendOptions{Schema: freshSchema(t, pool), NoSweep: true}), pool
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// A steered Backend has a pool of its own, in whose sessions the clock can be set.
type steered struct {
	*Backend
	set atomic.Int64
	now func() int64 // what was set, unless a test has its own; 0: the server's
}

// steerable replaces the clock of a schema by one that sessions can set.
func steerable(t testing.TB, pool *pgxpool.Pool, schema string) {
	exec(t, pool, `create or replace function "`+schema+`".clock() returns bigint language sql volatile as $$
		select coalesce(nullif(current_setting('weirtest.now', true), '')::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
	$$`)
}

func newSteered(t testing.TB, url, schema string, configure ...func(*pgxpool.Config)) *steered {
	s := &steered{}
	s.now = s.set.Load
	pool := connect(t, url, func(c *pgxpool.Config) {
		for _, f := range configure {
			f(c)
		}
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			micros := s.now()
			if micros == 0 {
				return true, nil
			}
			_, err := conn.Exec(ctx, "select set_config('weirtest.now', $1, false)", fmt.Sprint(micros))
			return err == nil, nil
		}
	})
	b, err := NewBackend(pool, &BackendOptions{Schema: schema, NoSweep: true})
	require.NoError(t, err)
	s.Backend = b
	return s
}

func (s *steered) setTime(micros int64) { s.set.Store(micros) }

// bucket is a definition of a token bucket, on the server's clock.
func bucket(t testing.TB, b *Backend, name string, permits, refill, period int64) *backend.Definition {
	t.Helper()
	_, now, err := b.Load(context.Background(), name)
	require.NoError(t, err)
	limits := rate.Schedule{Kind: rate.TokenBucket, Permits: permits, Refill: refill, Period: period}
	return backend.NewDefinition(name, limits, now)
}

// stored is bucket with the definition stored: only then the function take decides.
func stored(t testing.TB, b *Backend, name string, permits, refill, period int64) *backend.Definition {
	t.Helper()
	d := bucket(t, b, name, permits, refill, period)
	done, err := b.Define(context.Background(), 0, d)
	require.NoError(t, err)
	require.True(t, done)
	return d
}

func concurrency(t testing.TB, b *Backend, name string, permits int64) *backend.Definition {
	t.Helper()
	d := bucket(t, b, name, permits, 0, 0)
	d.Kind = rate.Concurrency
	return d
}

func take(d *backend.Definition, key string, n int64) *backend.Batch {
	return &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: n, Max: n}}}
}
