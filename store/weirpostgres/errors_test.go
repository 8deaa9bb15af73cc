package weirpostgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
	"github.com/weir-go/weir/tools/testserver"
)

// everything calls each method that sends something.
func everything(ctx context.Context, b *Backend) map[string]error {
	d := &backend.Definition{Name: "a", Version: 1, Schedule: rate.Schedule{Kind: rate.FixedWindow, Permits: 5, Period: 1_000_000}}
	c := &backend.Definition{Name: "c", Version: 1, Schedule: rate.Schedule{Kind: rate.Concurrency, Permits: 5}}
	requests := []*backend.LeaseRequest{{Definition: c, ID: "x", Permits: 1, TTL: 1_000_000}}
	_, replace := replaceOne(ctx, b, d, "k", backend.State{}, backend.State{})
	_, _, load := b.Load(ctx, "a")
	_, define := b.Define(ctx, 0, d)
	return map[string]error{
		"decide": b.Decide(ctx, []*backend.Batch{take(d, "k", 1)}), "replace": replace, "load": load, "define": define,
		"acquire": b.Acquire(ctx, requests), "renew": b.Renew(ctx, requests), "release": b.Release(ctx, requests),
	}
}

func TestMissingSchemaSaysWhatToDo(t *testing.T) {
	pool := connect(t, postgres(t).URL, nil)
	b := newBackend(t, pool, BackendOptions{Schema: "not_there"})
	for what, err := range everything(t.Context(), b) {
		assert.ErrorContains(t, err, "weirpostgres: "+what+`: schema "not_there" is missing`)
		assert.ErrorContains(t, err, "call Migrate")
		_, ok := errors.AsType[*pgconn.PgError](err)
		assert.True(t, ok, "the server's error is inside")
	}
}

func TestReadOnlyServerIsAnError(t *testing.T) {
	server := postgres(t)
	schema := freshSchema(t, connect(t, server.URL, nil))
	pool := connect(t, server.URL, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	b := newBackend(t, pool, BackendOptions{Schema: schema})
	for what, err := range everything(t.Context(), b) {
		switch what {
		case "decide", "acquire", "define", "replace", "renew", "release":
			assert.ErrorContains(t, err, "the server is read-only", what)
		default:
			assert.NoError(t, err, what)
		}
	}
}

func TestServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	server := testserver.NewPostgres(t)
	pool := connect(t, server.URL, nil)
	require.NoError(t, Migrate(t.Context(), pool, ""))
	b := newBackend(t, pool, BackendOptions{})
	for what, err := range everything(t.Context(), b) {
		require.NoError(t, err, what)
	}
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	begin := time.Now()
	for what, err := range everything(ctx, b) {
		assert.ErrorIs(t, err, context.DeadlineExceeded, what)
	}
	cancel()
	assert.Less(t, time.Since(begin), 10*time.Second)
	server.Resume()
	server.Kill()
	for what, err := range everything(t.Context(), b) {
		assert.ErrorContains(t, err, "weirpostgres: "+what)
	}
	require.NoError(t, server.Restart(false))
	require.Eventually(t, func() bool { return b.Decide(t.Context(), nil) == nil && pool.Ping(t.Context()) == nil }, 20*time.Second, 50*time.Millisecond)
	for what, err := range everything(t.Context(), b) {
		assert.NoError(t, err, what)
	}
}

func TestDecide_InvalidInput(t *testing.T) {
	b, _ := shared(t)
	good := bucket(t, b, "a", 5, 1, 1000)
	bad := func(change func(*backend.Definition)) *backend.Definition {
		d := *good
		change(&d)
		return &d
	}
	for name, d := range map[string]*backend.Definition{
		"nil":      nil,
		"period":   bad(func(d *backend.Definition) { d.Period = 0 }),
		"refill":   bad(func(d *backend.Definition) { d.Refill = -1 }),
		"kind":     bad(func(d *backend.Definition) { d.Kind = 0 }),
		"no grid":  bad(func(d *backend.Definition) { d.Kind = rate.Concurrency }),
		"zero":     bad(func(d *backend.Definition) { d.Name = "a\x00b" }),
		"not utf8": bad(func(d *backend.Definition) { d.Name = "a\xff" }),
		"long":     bad(func(d *backend.Definition) { d.Name = strings.Repeat("é", 300) }),
	} {
		batch := &backend.Batch{Definition: d}
		require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch}), "it is nothing to other keys")
		assert.Equal(t, backend.Failed, batch.Outcome, name)
		assert.ErrorContains(t, batch.Err, "weirpostgres: decide: ", name)
	}
	_, _, err := b.Load(t.Context(), "a\x00")
	assert.ErrorContains(t, err, "must be valid UTF-8")
	_, err = b.Define(t.Context(), 0, bad(func(d *backend.Definition) { d.Version = 0 }))
	assert.ErrorContains(t, err, "the version must be more than 0")
	seats := bad(func(d *backend.Definition) {
		d.Name, d.Schedule = "seats", rate.Schedule{Kind: rate.Concurrency, Permits: 5}
	})
	for name, ask := range map[string]func(context.Context, []*backend.LeaseRequest) error{"acquire": b.Acquire, "renew": b.Renew, "release": b.Release} {
		wrong := &backend.LeaseRequest{Definition: bad(func(d *backend.Definition) { d.Name = "a\x00b" }), Key: "a", ID: "1", Permits: 1, TTL: 1e7}
		right := &backend.LeaseRequest{Definition: seats, Key: "b", ID: "2", Permits: 1, TTL: 1e7}
		require.NoError(t, ask(t.Context(), []*backend.LeaseRequest{wrong, right}), "it is nothing to other keys")
		assert.Equal(t, backend.Failed, wrong.Outcome, name)
		assert.ErrorContains(t, wrong.Err, "weirpostgres: "+name+": ")
		assert.Equal(t, backend.Decided, right.Outcome, name)
	}
	assert.NoError(t, b.Acquire(t.Context(), nil))
	assert.NoError(t, b.Decide(t.Context(), nil))
}

// Long keys do not fit into an index, and must not be mistaken for others.
func TestLongKeys(t *testing.T) {
	b, _ := shared(t)
	d := bucket(t, b, strings.Repeat("n", maxName), 5, 1, 1_000_000_000)
	long := strings.Repeat("k", 1_000_000)
	for _, key := range []string{long, long + "a", long[:maxKey], long[:maxKey+1], string(keyBytes(long))} {
		batch := take(d, key, 4)
		require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch}))
		assert.Equal(t, []int64{4}, batch.Granted)
	}
	again := take(d, long, 4)
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{again}))
	assert.Equal(t, []int64{backend.Rejected}, again.Granted)
	c := concurrency(t, b, strings.Repeat("n", maxName), 1)
	h := &backend.LeaseRequest{Definition: c, Key: long, ID: long, Permits: 1, TTL: 60_000_000}
	require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
	assert.True(t, h.OK)
	other := &backend.LeaseRequest{Definition: c, Key: long, ID: "other", Permits: 1, TTL: 60_000_000, Waiting: true}
	require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{other}))
	assert.False(t, other.OK)
	require.NoError(t, b.Release(t.Context(), []*backend.LeaseRequest{h}))
	assert.True(t, h.OK)
}

// Sessions at another isolation level cannot work on one key at a time: they fail, and say why.
func TestIsolationLevelIsNamed(t *testing.T) {
	err := (&database{}).explain("decide", &pgconn.PgError{Code: serializationFailure})
	require.ErrorContains(t, err, "weirpostgres: decide: sessions must be at isolation level read committed")
}

// What a deadlock or a serialization failure has ended has done nothing, and is sent once more.
func TestDeadlockIsRepeatedOnce(t *testing.T) {
	b, pool := shared(t)
	d := concurrency(t, b, "c", 1)
	for _, code := range []string{deadlockDetected, serializationFailure} {
		for failures, want := range map[int]bool{1: true, 2: false} {
			exec(t, pool, pgmigrate.InSchema(`drop sequence if exists "weir".calls`, b.schema))
			exec(t, pool, pgmigrate.InSchema(`create sequence "weir".calls`, b.schema)) // what it counts is not rolled back
			exec(t, pool, pgmigrate.InSchema(fmt.Sprintf(`create or replace function "weir".renew(a_name text, a_key bytea, a_id bytea, a_fence bigint, ttl bigint)
				returns boolean language plpgsql as $$ begin
					if nextval('"weir".calls') <= %d then raise exception using errcode = '%s'; end if;
					return true;
				end $$`, failures, code), b.schema))
			h := lease(d, "", "a", 1)
			err := b.Renew(t.Context(), []*backend.LeaseRequest{h})
			assert.Equal(t, want, err == nil && h.OK, "%d times %s: %v", failures, code, err)
			assert.EqualValues(t, 2, count(t, pool, pgmigrate.InSchema(`select last_value from "weir".calls`, b.schema)))
		}
	}
}

// Close does not wait for the server to finish a sweep, but for us to have ended it.
func TestCloseEndsASweep(t *testing.T) {
	pool := connect(t, postgres(t).URL, nil)
	schema := freshSchema(t, pool)
	exec(t, pool, pgmigrate.InSchema(`create or replace function "weir".sweep(first bigint, pages bigint) returns bigint[] language plpgsql as $$
		begin perform pg_sleep(60); return array[0, 0]; end $$`, schema))
	b, err := NewBackend(pool, &BackendOptions{Schema: schema})
	require.NoError(t, err)
	b.sweeper.decided(minDecisions)
	require.Eventually(t, func() bool {
		return count(t, pool, `select count(*) from pg_stat_activity where state = 'active' and query like '%"' || $1 || '".sweep(%' and pid <> pg_backend_pid()`, schema) == 1
	}, 20*time.Second, time.Millisecond)
	begin := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(begin), 20*time.Second)
	require.NoError(t, b.Close())
}

// What is wrong with the row of one key is nothing to the other keys of the same statement.
func TestDecide_AFailureIsThatOfOneKey(t *testing.T) {
	b, pool := shared(t)
	d := bucket(t, b, "it", 5, 1, 3_600_000_000)
	batch := func(key string) *backend.Batch {
		asks := []backend.Request{{Min: 1, Max: 1}, {Min: 1, Max: 1}}
		return &backend.Batch{Definition: d, Key: key, Requests: asks, Granted: make([]int64, len(asks))}
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch(key)}))
	}
	_, err := pool.Exec(t.Context(), `update "`+b.schema+`".states set missing = -9223372036854775808 where key = 'b'`)
	require.NoError(t, err)
	all := []*backend.Batch{batch("a"), batch("b"), batch("c"), batch("d")}
	require.NoError(t, b.Decide(t.Context(), all))
	for i, one := range all {
		if i == 1 {
			require.Equal(t, backend.Failed, one.Outcome)
			require.ErrorContains(t, one.Err, "out of range")
		} else {
			require.Equal(t, backend.Decided, one.Outcome, one.Key)
			require.EqualValues(t, 4, one.State.Missing, "it is decided once")
		}
	}
	require.NoError(t, b.Decide(t.Context(), all[1:2]))
	require.Equal(t, backend.Failed, all[1].Outcome)
}

// Where a range of the table is full of rows that no key needs, the next one is looked through soon.
func TestSweeper_IsFasterWhereMuchIsFound(t *testing.T) {
	b, pool := shared(t)
	exec(t, pool, pgmigrate.InSchema(`insert into "weir".states
		select 'a', i::text::bytea, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0 from generate_series(1, 20000) i`, b.schema))
	b.sweeper.page, b.sweeper.after = 0, maxDecisions
	for _, want := range []int64{maxDecisions / 4, maxDecisions / 16} {
		require.NoError(t, b.sweeper.sweep(t.Context()))
		require.Equal(t, want, b.sweeper.after)
	}
	for range 10 {
		b.sweeper.page = 0
		require.NoError(t, b.sweeper.sweep(t.Context()))
	}
	require.EqualValues(t, maxDecisions, b.sweeper.after, "nothing is left there")
}
