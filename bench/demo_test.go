package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A demo is one of the three rate limiters in PostgreSQL that weir grew from: a request for each user in each interval.
// They are first versions, without what a program in use would need.
type demo struct {
	name string
	// create makes the table; %s is its name.
	create []string
	// fill makes the rows of users 0 to $1-1, where the limiter needs them.
	fill string
	// allow asks for a user. In its statements $1 is the user and $2 the interval.
	allow func(ctx context.Context, pool *pgxpool.Pool, sql []string, args []any) (bool, error)
	sql   []string
}

var demos = []demo{
	// Lock the user's row, look at the time of the last request, write the new one.
	{
		name:   "nowait",
		create: []string{"create table %s (who text primary key, last timestamptz not null)"},
		fill:   "insert into %s select 'user:' || to_char(n, 'FM0000000'), '-infinity' from generate_series(0, $1 - 1) n",
		sql: []string{
			"select last <= now() - $2::interval from %s where who = $1 for update nowait",
			"update %s set last = now() where who = $1",
		},
		allow: lockRow,
	},
	// Insert the time range that a request reserves for itself. A constraint lets no two ranges overlap.
	{
		name: "exclusion",
		create: []string{
			"create extension if not exists btree_gist",
			"create table %s (who text not null, during tstzrange not null, exclude using gist (who with =, during with &&))",
		},
		sql: []string{"insert into %s (who, during) values ($1, tstzrange(now(), now() + $2::interval))"},
		allow: func(ctx context.Context, pool *pgxpool.Pool, sql []string, args []any) (bool, error) {
			_, err := pool.Exec(ctx, sql[0], args...)
			if sqlState(err) == "23P01" { // it overlaps
				return false, nil
			}
			return err == nil, err
		},
	},
	// In one statement, write the time of this request if the last one is long enough ago.
	{
		name:   "upsert",
		create: []string{"create table %s (who text primary key, last timestamptz not null)"},
		sql: []string{"insert into %s as t (who, last) values ($1, now()) " +
			"on conflict (who) do update set last = excluded.last where t.last <= excluded.last - $2::interval"},
		allow: func(ctx context.Context, pool *pgxpool.Pool, sql []string, args []any) (bool, error) {
			tag, err := pool.Exec(ctx, sql[0], args...)
			return err == nil && tag.RowsAffected() == 1, err
		},
	},
}

func lockRow(ctx context.Context, pool *pgxpool.Pool, sql []string, args []any) (granted bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sql[0], args...).Scan(&granted); err != nil || !granted {
			return err
		}
		_, err := tx.Exec(ctx, sql[1], args[0])
		return err
	})
	return granted && err == nil, err
}

// sqlState returns PostgreSQL's code of an error, such as "40P01" for a deadlock, or "" if the error is not PostgreSQL's.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// setUp creates a table, which is dropped at the end of the test, and returns the call for a user.
func (d demo) setUp(t testing.TB, pool *pgxpool.Pool, users int, interval time.Duration) func(ctx context.Context, key string) (bool, error) {
	t.Helper()
	table := newTable(t, pool, d.create)
	if d.fill != "" {
		_, err := pool.Exec(ctx, fmt.Sprintf(d.fill, table), users)
		require.NoError(t, err)
	}
	sql := make([]string, len(d.sql))
	for i, s := range d.sql {
		sql[i] = fmt.Sprintf(s, table)
	}
	return func(ctx context.Context, key string) (bool, error) {
		return d.allow(ctx, pool, sql, []any{key, interval})
	}
}

var tables atomic.Int64

// newTable creates a table with a name of its own, by statements in which %s is that name.
func newTable(t testing.TB, pool *pgxpool.Pool, create []string) string {
	t.Helper()
	table := fmt.Sprintf("bench_%d_%d", os.Getpid(), tables.Add(1))
	for _, sql := range create {
		if strings.Contains(sql, "%s") {
			sql = fmt.Sprintf(sql, table)
		}
		_, err := pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, "drop table "+table)
		assert.NoError(t, err)
	})
	return table
}

// TestDemos: the first request of a user is granted, the next is not.
func TestDemos(t *testing.T) {
	pool := postgres(t, nil, 4)
	for _, d := range demos {
		t.Run(d.name, func(t *testing.T) {
			allow := d.setUp(t, pool, 2, time.Hour)
			for _, key := range []string{keyName(0), keyName(1)} {
				for _, first := range []bool{true, false} {
					granted, err := allow(t.Context(), key)
					require.NoError(t, err)
					assert.Equal(t, first, granted)
				}
			}
		})
	}
}
