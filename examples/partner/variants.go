package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/weirpostgres"
)

// The limit of every variant: a user may make one request each two seconds.
const interval = 2 * time.Second

// tick is the distance of the moments at which weir's bucket gets a token back. The bucket fills in one interval and a
// request takes all of it, so two requests are never closer than the interval, but for one tick.
//
// A bucket of one token that comes back every two seconds would not do: its tokens come at fixed moments, so a request
// just before such a moment and a request just after it are both granted.
const (
	tick = time.Millisecond
	cost = int(interval / tick)
)

var bucket = limiter.TokenBucketOptions{TokenLimit: cost, TokensPerPeriod: 1, ReplenishmentPeriod: tick}

// callTimeout bounds a call of a SQL variant. It is longer than PostgreSQL's deadlock_timeout, so that PostgreSQL ends a
// deadlock first.
const callTimeout = 5 * time.Second

// A variant is a way to limit requests in PostgreSQL. The statements are docs/postgres-limiters.md's; SCHEMA is replaced
// by the name of the schema. Each variant has its own table.
type variant struct {
	name  string
	about string
	setUp []string
	allow func(ctx context.Context, pool *pgxpool.Pool, sql []string, user string) (bool, error)
	sql   []string
}

var variants = []variant{
	{
		name:  "weir",
		about: "weir's token bucket, shared through PostgreSQL",
	},
	{
		name:  "nowait",
		about: "lock the user's row with nowait, look at the last request, write this one",
		setUp: []string{"create table if not exists SCHEMA.last_request (who text primary key, at timestamptz not null)"},
		sql: []string{
			"insert into SCHEMA.last_request values ($1, '-infinity') on conflict do nothing",
			"select at <= now() - $2::interval from SCHEMA.last_request where who = $1 for update nowait",
			"update SCHEMA.last_request set at = now() where who = $1",
		},
		allow: lockRow,
	},
	{
		name:  "exclusion",
		about: "insert the two seconds that a request takes; a constraint lets none overlap",
		setUp: []string{
			"create extension if not exists btree_gist",
			"create table if not exists SCHEMA.reserved (who text not null, during tstzrange not null, exclude using gist (who with =, during with &&))",
		},
		sql: []string{"insert into SCHEMA.reserved values ($1, tstzrange(now(), now() + $2::interval))"},
		allow: func(ctx context.Context, pool *pgxpool.Pool, sql []string, user string) (bool, error) {
			_, err := pool.Exec(ctx, sql[0], user, interval)
			if sqlState(err) == "23P01" { // it overlaps
				return false, nil
			}
			return err == nil, err
		},
	},
	{
		name:  "upsert",
		about: "one statement that writes this request if the last one is long enough ago",
		setUp: []string{"create table if not exists SCHEMA.last_request (who text primary key, at timestamptz not null)"},
		sql: []string{"insert into SCHEMA.last_request as t values ($1, now()) " +
			"on conflict (who) do update set at = excluded.at where t.at <= excluded.at - $2::interval"},
		allow: func(ctx context.Context, pool *pgxpool.Pool, sql []string, user string) (bool, error) {
			tag, err := pool.Exec(ctx, sql[0], user, interval)
			return err == nil && tag.RowsAffected() == 1, err
		},
	},
}

func lockRow(ctx context.Context, pool *pgxpool.Pool, sql []string, user string) (granted bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sql[1], user, interval).Scan(&granted)
		if errors.Is(err, pgx.ErrNoRows) { // the user's first request
			if _, err = tx.Exec(ctx, sql[0], user); err == nil {
				err = tx.QueryRow(ctx, sql[1], user, interval).Scan(&granted)
			}
		}
		if err != nil || !granted {
			return err
		}
		_, err = tx.Exec(ctx, sql[2], user)
		return err
	})
	return granted && err == nil, err
}

// variantByName returns an error that names all variants if there is none of that name.
func variantByName(name string) (variant, error) {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
	if i < 0 {
		return variant{}, usage("-variant must be one of %s, got %q", variantNames(), name)
	}
	return variants[i], nil
}

func variantNames() string {
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}

// open returns the limiter of the variant, which makes its decisions in the schema, and a function that closes it. st is
// nil for all variants but weir.
func (v variant) open(ctx context.Context, pool *pgxpool.Pool, schema string, onEvent func(store.Event)) (
	l limiter.Partitioned[string], st *store.Store, stop func(), err error,
) {
	if v.allow != nil {
		sql := make([]string, len(v.sql))
		for i, text := range v.sql {
			sql[i] = inSchema(text, schema)
		}
		return &sqlLimiter{v, pool, sql}, nil, func() {}, nil
	}
	if err := weirpostgres.Migrate(ctx, pool, schema); err != nil { // every instance may call it
		return nil, nil, nil, err
	}
	st, err = weirpostgres.New(pool, &weirpostgres.Options{Schema: schema, Options: store.Options{OnEvent: onEvent}})
	if err != nil {
		return nil, nil, nil, err
	}
	shared, err := st.PartitionedTokenBucket("one-in-two-seconds", bucket, nil)
	if err != nil {
		return nil, nil, nil, errors.Join(err, st.Close())
	}
	return shared, st, func() { _ = st.Close() }, nil
}

// permits returns how many permits a request takes.
func (v variant) permits() int {
	if v.allow == nil {
		return cost
	}
	return 1
}

// inSchema replaces SCHEMA in a statement by the name of the schema.
func inSchema(sql, schema string) string {
	return strings.ReplaceAll(sql, "SCHEMA", pgx.Identifier{schema}.Sanitize())
}

// A sqlLimiter makes a limiter of a SQL variant. So the middleware, the metrics and the panels are the same for all variants.
type sqlLimiter struct {
	variant variant
	pool    *pgxpool.Pool
	sql     []string
}

// TryAcquire ignores n: a request is a request.
func (l *sqlLimiter) TryAcquire(ctx context.Context, user string, n int) (limiter.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	granted, err := l.variant.allow(ctx, l.pool, l.sql, user)
	switch {
	case err != nil:
		return limiter.Lease{}, err
	case granted:
		return custom.Granted(n, nil), nil
	default:
		return custom.Rejected(0, ""), nil
	}
}

// Acquire is TryAcquire: these limiters have no queue.
func (l *sqlLimiter) Acquire(ctx context.Context, user string, n int) (limiter.Lease, error) {
	return l.TryAcquire(ctx, user, n)
}

// sqlState returns PostgreSQL's code of an error, such as "40P01" for a deadlock, or "" if the error is not PostgreSQL's.
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
