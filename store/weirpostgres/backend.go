package weirpostgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/backend"
)

// BackendOptions configure how a [Backend] uses its database. The zero value has the defaults.
type BackendOptions struct {
	// Schema is the schema of the tables. It has letters, digits and _, and does not begin with a digit. The default is
	// weir.
	Schema string `json:"schema,omitempty" yaml:"schema,omitempty"`
	// AsynchronousCommit, if true, makes decisions several times faster: they do not wait for the server's disk. If the
	// server crashes, permits of the last moments (three times wal_writer_delay, by default 0.6 s) can be granted
	// again. Leases still wait; only their release does not, and a lost one ends with its TTL. If false, the session's
	// synchronous_commit applies.
	AsynchronousCommit bool `json:"asynchronous_commit,omitempty" yaml:"asynchronous_commit,omitempty"`
	// NoSweep, if true, leaves deleting unused rows to other instances. By default, while decisions are made, this
	// instance sweeps 1 MB of each table every ten seconds, or earlier after 1000 to 64,000 decisions: the more rows it
	// finds, the fewer. While it finds many, it sweeps up to four times a second.
	NoSweep bool `json:"no_sweep,omitempty" yaml:"no_sweep,omitempty"`
}

// A Backend keeps the state of limiters in PostgreSQL. It is safe for use by many goroutines at once. The zero value is
// not usable; make a Backend with [NewBackend].
type Backend struct {
	pool    *pgxpool.Pool
	schema  string
	channel string
	async   bool
	plain   bool // the pool keeps prepared statements, and single takes use the plain statement
	sql     statements
	detours recentDetours
	locks   recentLocks

	decisions keyedStatement[*backend.Batch]

	sweeper sweeper
}

var _ backend.Backend = (*Backend)(nil)

// statements are the texts that are sent, made once so that pgx finds them prepared.
type statements struct {
	decide, decideMany             string
	decideSingle, replace          string
	acquire, renew, release        string
	load, create, redefine, notify string
	sweep                          string

	lockedStates, lockedSemaphores, lockedLeases string
}

// NewBackend returns a Backend that uses the pool, which it does not close. Nil options have the defaults. It sends
// nothing: the first call shows whether the schema exists. Close the pool after the Backend.
func NewBackend(pool *pgxpool.Pool, options *BackendOptions) (*Backend, error) {
	var o BackendOptions
	if options != nil {
		o = *options
	}
	if pool == nil {
		return nil, &weir.OptionsError{Package: "weirpostgres", Fields: []weir.FieldError{{Path: "pool", Problem: "must not be nil"}}}
	}
	schema, err := schemaName(o.Schema)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		pool: pool, schema: schema, channel: channelOf(schema), async: o.AsynchronousCommit, plain: keepsStatements(pool),
		sql: statementsOf(schema, o.AsynchronousCommit),
	}
	b.detours.init()
	b.locks.init()
	b.decisions = b.newDecisions()
	b.sweeper.init(b, !o.NoSweep)
	return b, nil
}

func statementsOf(schema string, async bool) statements {
	s := func(text string) string { return inSchema(text, schema) }
	first := ", " + waitFor("$14")
	if async {
		first += `, set_config('synchronous_commit', 'off', true)`
	}
	return statements{
		decideSingle: s(singleStatement(first)),
		// A newer definition answers before anything is decided. The statement's snapshot shows what was committed
		// before the statement was sent.
		decide: s(`select coalesce(
				(select array[2, 0, d.version] from "weir".definitions d where d.name = $1::text and d.version > ($3::bigint[])[3]),
				"weir".decide($1::text, $2::bytea, $3::bigint[]))
			from (select ` + waitFor("$4") + `) w`),
		// unnest returns rows in the order of the arrays, so keys are locked in that order.
		decideMany: s(`select coalesce(
				(select array[2, 0, d.version] from "weir".definitions d where d.name = u.name and d.version > ($5::bigint[])[u.first+2]),
				"weir".decide(u.name, u.key, ($5::bigint[])[u.first:u.last]))
			from (select ` + waitFor("$6") + `) w, unnest($1::text[], $2::bytea[], $3::int[], $4::int[]) u(name, key, first, last)`),
		replace: s(`select "weir".replace(u.name, u.key, $3::boolean,
				($4::bigint[])[9*u.i-8:9*u.i], ($5::bigint[])[u.old_first:u.old_last],
				($6::bigint[])[9*u.i-8:9*u.i], ($7::bigint[])[u.new_first:u.new_last])
			from (select ` + waitFor("$12") + `) w, unnest($1::text[], $2::bytea[], $8::int[], $9::int[], $10::int[], $11::int[])
			with ordinality u(name, key, old_first, old_last, new_first, new_last, i)`),
		acquire: s(`select coalesce(
				(select array[d.version] from "weir".definitions d where d.name = u.name and d.version > u.version),
				"weir".acquire(u.name, u.key, array[u.version, u.most, u.waiting],
				($8::bytea[])[u.first:u.last], ($9::bigint[])[2*u.first-1:2*u.last]))
			from (select ` + waitFor("$10") + `) w,
			unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::int[], $7::int[])
			u(name, key, version, most, waiting, first, last)`),
		renew: s(`select "weir".renew(u.name, u.key, u.id, u.fence, u.ttl)
			from (select ` + waitFor("$6") + `) w, unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) u(name, key, id, fence, ttl)`),
		release: s(`select "weir".release(u.name, u.key, u.id, u.fence, $5::boolean, u.notifies)
			from (select ` + waitFor("$7") + `) w, unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[], $6::boolean[]) u(name, key, id, fence, notifies)`),
		load: s(`select "weir".clock(), d.version, d.kind, d.permits, d.period, d.refill, d.segments, d.anchor, d.reached,
				d.generation, d.explicit, d.made, d.made_by, d.past
			from (select) one left join "weir".definitions d on d.name = $1::text`),
		create: s(`with made as (insert into "weir".definitions (name, version, kind, permits, period, refill, segments, anchor, reached,
					generation, explicit, made, made_by, past)
				select $1::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::boolean,
					$11::bigint, $12::boolean, $13::bigint, $14::text, $15::text from (select ` + waitFor("$16") + `) w
				on conflict do nothing returning name)
			select "weir".send_notice('d', name, ''), $2::bigint from made`),
		redefine: s(`with made as (update "weir".definitions set version = $3::bigint, kind = $4::bigint, permits = $5::bigint,
				period = $6::bigint, refill = $7::bigint, segments = $8::bigint, anchor = $9::bigint, reached = $10::boolean,
				generation = $11::bigint, explicit = $12::boolean, made = $13::bigint, made_by = $14::text, past = $15::text
				from (select ` + waitFor("$16") + `) w where name = $1::text and version = $2::bigint returning name)
			select "weir".send_notice('d', name, '') from made`),
		notify: `select pg_notify($1::text, $2::text)`,
		sweep:  s(`select "weir".sweep($1::bigint, $2::bigint)`),

		lockedStates:     s(statementLocked("states", "s.name = u.name and s.key = u.key")),
		lockedSemaphores: s(statementLocked("semaphores", "s.name = u.name and s.key = u.key")),
		lockedLeases:     s(statementLocked("leases", "s.name = u.name and s.key = u.key and s.id = u.id")),
	}
}

// waitFor sets lock_timeout for this statement. It is set before the first row is read, because a subquery with
// set_config is not flattened.
func waitFor(ms string) string { return `set_config('lock_timeout', ` + ms + `::text, true)` }

// Close ends what the Backend does in the background, and waits for it. It does not close the pool.
func (b *Backend) Close() error {
	b.sweeper.close()
	return nil
}

// query sends a statement, and calls row for each row of the answer. A statement that was ended by a deadlock or a
// serialization failure has done nothing, and is sent once more.
func (b *Backend) query(ctx context.Context, what, sql string, args []any, row func(pgx.Rows) error) error {
	err := b.queryOnce(ctx, sql, args, row)
	if repeatable(err) {
		err = b.queryOnce(ctx, sql, args, row)
	}
	return b.explain(what, err)
}

func (b *Backend) queryOnce(ctx context.Context, sql string, args []any, row func(pgx.Rows) error) error {
	conn, err := b.connection(ctx, sql)
	if err != nil {
		return err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return release(conn, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return release(conn, rows.Err())
}

// queryAll is query for a statement that must return n rows; row gets their index.
func (b *Backend) queryAll(ctx context.Context, what, sql string, args []any, n int, row func(i int, rows pgx.Rows) error) error {
	var i int
	one := func(rows pgx.Rows) error {
		if i++; i > n {
			return nil
		}
		return row(i-1, rows)
	}
	err := b.queryOnce(ctx, sql, args, one)
	if repeatable(err) {
		i = 0
		err = b.queryOnce(ctx, sql, args, one)
	}
	if err == nil && i != n {
		err = fmt.Errorf("the server gave %d answers to %d questions", i, n)
	}
	return b.explain(what, err)
}
