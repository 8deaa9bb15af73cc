package weirpostgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
	"github.com/weir-go/weir/tools/testserver"
)

// runSuite runs the suite with the server's time.
func runSuite(t *testing.T, pool *pgxpool.Pool, o BackendOptions, noListen bool) {
	storetest.Run(t, storetest.Subject{
		NoListen: noListen,
		New: func(t testing.TB) backend.Backend {
			b, err := NewBackend(pool, &o)
			require.NoError(t, err)
			return b
		},
		Keys: func(t testing.TB, b backend.Backend, name string) int { return keys(t, b.(*Backend), name) },
	})
}

func TestSuiteWithClock(t *testing.T) {
	url := postgres(t).URL
	pool := connect(t, url, nil)
	schema := freshSchema(t, pool)
	steerable(t, pool, schema)
	storetest.Run(t, storetest.Subject{
		New:     func(t testing.TB) backend.Backend { return newSteered(t, url, schema) },
		SetTime: func(_ testing.TB, b backend.Backend, micros int64) { b.(*steered).setTime(micros) },
		Keys:    func(t testing.TB, b backend.Backend, name string) int { return keys(t, b.(*steered).Backend, name) },
	})
}

// With -short, the suite runs with the documented grants only. Here the server does not keep the statements, or not all of them, and
// no commit is waited for.
func TestSuiteModes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long, and little is different")
	}
	server := postgres(t)
	for _, mode := range []string{"simple_protocol", "exec", "cache_describe", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			pool := connect(t, server.URL+"&default_query_exec_mode="+mode, nil)
			runSuite(t, pool, BackendOptions{Schema: freshSchema(t, pool), AsynchronousCommit: true}, false)
		})
	}
	t.Run("through PgBouncer", func(t *testing.T) {
		bouncer := testserver.NewPgBouncer(t, server)
		schema := freshSchema(t, connect(t, server.URL, nil))
		pool := connect(t, bouncer.URL+"&default_query_exec_mode=exec", func(c *pgxpool.Config) { c.MaxConns = 4 })
		runSuite(t, pool, BackendOptions{Schema: schema}, true)
	})
}

// keys is of how many keys of a limiter something is stored, after all has been swept that can be.
func keys(t testing.TB, b *Backend, name string) int {
	t.Helper()
	_, pages, err := b.sweeper.sweepRange(context.Background(), 0, 0)
	require.NoError(t, err)
	_, _, err = b.sweeper.sweepRange(context.Background(), 0, pages+1)
	require.NoError(t, err)
	return int(count(t, b.pool, pgmigrate.InSchema(`select (select count(*) from "weir".states where name = $1)
		+ (select count(*) from "weir".semaphores where name = $1) + (select count(*) from "weir".leases where name = $1)`, b.schema), name))
}
