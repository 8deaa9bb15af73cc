package main

import (
	"context"
	"errors"
	"fmt"
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

// A variant is a way to limit requests in PostgreSQL. The statements are those of docs/postgres-limiters.md.
type variant struct {
	name, about string
	setUp       []string
	allow       func(ctx context.Context, pool *pgxpool.Pool, user string) (bool, error) // nil: weir
}

const lastRequest = "create table if not exists last_request (who text primary key, at timestamptz not null)"

var variants = []variant{
	{name: "weir", about: "weir's token bucket, shared through PostgreSQL"},
	{
		name:  "nowait",
		about: "lock the user's row with nowait, look at the last request, write this one",
		setUp: []string{lastRequest},
		allow: func(ctx context.Context, pool *pgxpool.Pool, user string) (granted bool, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				const look = "select at <= now() - $2::interval from last_request where who = $1 for update nowait"
				err := tx.QueryRow(ctx, look, user, interval).Scan(&granted)
				if errors.Is(err, pgx.ErrNoRows) { // the user's first request
					if _, err = tx.Exec(ctx, "insert into last_request values ($1, '-infinity') on conflict do nothing", user); err == nil {
						err = tx.QueryRow(ctx, look, user, interval).Scan(&granted)
					}
				}
				if err != nil || !granted {
					return err
				}
				_, err = tx.Exec(ctx, "update last_request set at = now() where who = $1", user)
				return err
			})
			return granted && err == nil, err
		},
	},
	{
		name:  "exclusion",
		about: "insert the two seconds that a request takes; a constraint lets none overlap",
		setUp: []string{
			"create extension if not exists btree_gist schema public",
			"create table if not exists reserved (who text not null, during tstzrange not null, exclude using gist (who with =, during with &&))",
		},
		allow: func(ctx context.Context, pool *pgxpool.Pool, user string) (bool, error) {
			_, err := pool.Exec(ctx, "insert into reserved values ($1, tstzrange(now(), now() + $2::interval))", user, interval)
			if sqlState(err) == "23P01" { // it overlaps
				return false, nil
			}
			return err == nil, err
		},
	},
	{
		name:  "upsert",
		about: "one statement that writes this request if the last one is long enough ago",
		setUp: []string{lastRequest},
		allow: func(ctx context.Context, pool *pgxpool.Pool, user string) (bool, error) {
			tag, err := pool.Exec(ctx, "insert into last_request as t values ($1, now()) "+
				"on conflict (who) do update set at = excluded.at where t.at <= excluded.at - $2::interval", user, interval)
			return err == nil && tag.RowsAffected() == 1, err
		},
	},
}

func variantNames() string {
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}

// MarshalText returns the name.
func (v variant) MarshalText() ([]byte, error) { return []byte(v.name), nil }

// UnmarshalText sets the variant of that name.
func (v *variant) UnmarshalText(name []byte) error {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == string(name) })
	if i < 0 {
		return fmt.Errorf("must be one of %s", variantNames())
	}
	*v = variants[i]
	return nil
}

// open returns the limiter of the variant, and a function that closes it.
func (v variant) open(ctx context.Context, pool *pgxpool.Pool, schema string, s *signals) (limiter.Partitioned[string], func(), error) {
	if v.allow != nil {
		return sqlLimiter{v, pool}, func() {}, nil
	}
	if err := weirpostgres.Migrate(ctx, pool, schema); err != nil { // every instance may call it
		return nil, nil, err
	}
	shared, err := weirpostgres.New(pool, &weirpostgres.Options{
		Schema: schema, Options: store.Options{OnEvent: s.telemetry.OnStoreEvent("postgres")},
	})
	if err != nil {
		return nil, nil, err
	}
	limited, err := shared.PartitionedTokenBucket("one-in-two-seconds", bucket, nil)
	if err != nil {
		return nil, nil, errors.Join(err, shared.Close())
	}
	unobserve := s.telemetry.ObserveStore("postgres", shared)
	return limited, func() { unobserve(); _ = shared.Close() }, nil
}

// A sqlLimiter makes a limiter of a SQL variant. So the middleware, the metrics and the panels are the same for all variants.
type sqlLimiter struct {
	variant variant
	pool    *pgxpool.Pool
}

// TryAcquire ignores n: a request is a request.
func (l sqlLimiter) TryAcquire(ctx context.Context, user string, n int) (limiter.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	granted, err := l.variant.allow(ctx, l.pool, user)
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
func (l sqlLimiter) Acquire(ctx context.Context, user string, n int) (limiter.Lease, error) {
	return l.TryAcquire(ctx, user, n)
}

// sqlState returns PostgreSQL's code of an error, such as "40P01" for a deadlock, or "" if the error is not PostgreSQL's.
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
