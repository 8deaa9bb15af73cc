package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	weirstore "github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/weirpostgres"
)

// BenchmarkPostgres compares decisions in PostgreSQL: single statements as the floor, the three limiters of the demo,
// and ours.
func BenchmarkPostgres(b *testing.B) {
	compareRemotely(b, []remote{
		{name: "floor-select", open: floor("select 1 where $1 <> ''", nil)},
		{name: "floor-upsert", open: floor(upsert, nil)},
		{name: "floor-upsert-async", open: floor(upsert, asynchronous)},
		// The rules of the demos let everything through, except in demo-upsert-rejected.
		{name: "demo-nowait", want: anything, open: demos[0].bench(-time.Hour)},
		{name: "demo-exclusion", want: anything, open: demos[1].bench(time.Microsecond)},
		{name: "demo-upsert", open: demos[2].bench(-time.Hour)},
		{name: "demo-upsert-rejected", want: rejecting, open: demos[2].bench(time.Hour)},

		{name: "weir", open: postgresOurs(weirstore.LimiterOptions{}, plentiful, false)},
		{name: "weir-async", open: postgresOurs(weirstore.LimiterOptions{}, plentiful, true)},
		{name: "weir-block-100", local: true, open: postgresOurs(weirstore.LimiterOptions{Block: 100}, plentiful, false)},
		{name: "weir-rejected", want: rejecting, open: postgresOurs(weirstore.LimiterOptions{}, scarce, false)},
		{name: "weir-rejected-cached", want: rejecting, local: true, open: postgresOurs(weirstore.LimiterOptions{CacheRejections: true}, scarce, false)},
	})
}

// asynchronous is for sessions that do not wait until a commit is on the disk.
var asynchronous = map[string]string{"synchronous_commit": "off"}

// upsert is the statement of a simple counter of requests. Its table has room for new versions in its pages, as ours has.
const upsert = "insert into %s as t (who, n) values ($1, 1) on conflict (who) do update set n = t.n + 1 returning n"

// floor sends one statement for each call. upsert gets a table.
func floor(sql string, settings map[string]string) func(b *testing.B, keys []string) func(string) (bool, error) {
	return func(b *testing.B, keys []string) func(string) (bool, error) {
		pool := postgres(b, settings, goroutines)
		if sql == upsert {
			table := newTable(b, pool, []string{"create table %s (who text primary key, n bigint not null) with (fillfactor = 50)"})
			sql := fmt.Sprintf(sql, table)
			return seen(b, keys, func(key string) (bool, error) { return one(pool, sql, key) })
		}
		return func(key string) (bool, error) { return one(pool, sql, key) }
	}
}

// one sends a statement that answers with a number.
func one(pool *pgxpool.Pool, sql, key string) (bool, error) {
	var n int64
	err := pool.QueryRow(ctx, sql, key).Scan(&n)
	return err == nil, err
}

// bench runs a demo by the server's clock.
func (d demo) bench(interval time.Duration) func(b *testing.B, keys []string) func(string) (bool, error) {
	return func(b *testing.B, keys []string) func(string) (bool, error) {
		pool := postgres(b, nil, goroutines)
		allow := d.setUp(b, pool, len(keys), interval)
		return seen(b, keys, func(key string) (bool, error) { return allow(ctx, key) })
	}
}

func postgresOurs(how weirstore.LimiterOptions, limit permits, async bool) func(b *testing.B, keys []string) func(string) (bool, error) {
	return func(b *testing.B, keys []string) func(string) (bool, error) {
		pool := postgres(b, nil, goroutines)
		s := inPostgres(b, pool, weirpostgres.Options{Schema: newSchema(b, pool), AsynchronousCommit: async})
		return seen(b, keys, perKey(b, s, how, limit))
	}
}
