package weirpostgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

// The time of this one is the server's.
func TestSuite(t *testing.T) {
	pool := connect(t, testserver.Postgres(t).URL, nil)
	schema := freshSchema(t, pool)
	storetest.Run(t, storetest.Subject{
		New: func(t testing.TB) backend.Backend {
			b, err := NewBackend(pool, &BackendOptions{Schema: schema})
			require.NoError(t, err)
			return b
		},
		Keys: func(t testing.TB, b backend.Backend, name string) int { return keys(t, b.(*Backend), name) },
	})
}

// The time of this one is set.
func TestSuiteWithClock(t *testing.T) {
	url := testserver.Postgres(t).URL
	pool := connect(t, url, nil)
	schema := freshSchema(t, pool)
	steerable(t, pool, schema)
	storetest.Run(t, storetest.Subject{
		New:     func(t testing.TB) backend.Backend { return newSteered(t, url, schema) },
		SetTime: func(_ testing.TB, b backend.Backend, micros int64) { b.(*steered).setTime(micros) },
		Keys:    func(t testing.TB, b backend.Backend, name string) int { return keys(t, b.(*steered).Backend, name) },
	})
}

// Statements that the server does not keep, and no commit that is waited for.
func TestSuiteModes(t *testing.T) {
	for _, mode := range []string{"simple_protocol", "exec", "cache_describe"} {
		if testing.Short() && mode != "simple_protocol" {
			continue // through PgBouncer, there is exec
		}
		t.Run(mode, func(t *testing.T) {
			pool := connect(t, testserver.Postgres(t).URL+"&default_query_exec_mode="+mode, nil)
			schema := freshSchema(t, pool)
			storetest.Run(t, storetest.Subject{New: func(t testing.TB) backend.Backend {
				b, err := NewBackend(pool, &BackendOptions{Schema: schema, AsynchronousCommit: true})
				require.NoError(t, err)
				return b
			}})
		})
	}
}

func TestSuiteThroughPgBouncer(t *testing.T) {
	server := testserver.Postgres(t)
	bouncer := testserver.NewPgBouncer(t, server)
	schema := freshSchema(t, connect(t, server.URL, nil))
	pool := connect(t, bouncer.URL+"&default_query_exec_mode=exec", func(c *pgxpool.Config) { c.MaxConns = 4 })
	storetest.Run(t, storetest.Subject{
		NoListen: true,
		New: func(t testing.TB) backend.Backend {
			b, err := NewBackend(pool, &BackendOptions{Schema: schema})
			require.NoError(t, err)
			return b
		},
	})
}

// keys is of how many keys of a limiter something is stored, after all has been swept that can be.
func keys(t testing.TB, b *Backend, name string) int {
	t.Helper()
	_, pages, err := b.sweepRange(context.Background(), 0, 0)
	require.NoError(t, err)
	_, _, err = b.sweepRange(context.Background(), 0, pages+1)
	require.NoError(t, err)
	return int(count(t, b.pool, pgmigrate.InSchema(`select (select count(*) from "weir".states where name = $1)
		+ (select count(*) from "weir".semaphores where name = $1) + (select count(*) from "weir".leases where name = $1)`, b.schema), name))
}
