package weirpostgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/store/backend"
)

// BackendOptions configure how a [Backend] uses its database. The zero value has the defaults.
type BackendOptions struct {
	// Schema is the schema of the tables. It has letters, digits and _, and does not begin with a digit. The default is
	// weir.
	Schema string `json:"schema,omitempty" yaml:"schema,omitempty"`
	// AsynchronousCommit, if true, makes decisions several times faster: they do not wait for the server's disk. If the
	// server crashes, permits of the last moments (three times wal_writer_delay, by default 0.6 s) can be granted
	// again. Acquiring and renewing leases still waits for the disk. Releasing a lease does not: if the crash undoes the
	// release, the lease ends with its TTL. If false, the session's synchronous_commit applies.
	AsynchronousCommit bool `json:"asynchronous_commit,omitempty" yaml:"asynchronous_commit,omitempty"`
	// NoSweep, if true, leaves deleting unused rows to other instances. By default, while decisions are made, this
	// instance sweeps 1 MB of each table every ten seconds, or earlier after 64,000 decisions. If sweeps find many unused
	// rows, the number falls to 1000 decisions, and the interval to a quarter of a second.
	NoSweep bool `json:"no_sweep,omitempty" yaml:"no_sweep,omitempty"`
}

// A Backend keeps the state of limiters in PostgreSQL. It is safe for use by many goroutines at once. The zero value is
// not usable; make a Backend with [NewBackend].
type Backend struct {
	pool    *pgxpool.Pool
	schema  string
	channel string
	async   bool
	sql     statements
	// prepares reports whether the pool keeps prepared statements. Only then single takes use the plain statement.
	prepares bool

	decisions  keyedStatement[*backend.Batch]
	rejections recentRejections
	// lockExpired is until when statements skip locked rows: see keyedStatement.
	lockExpired atomic.Int64
	took        atomic.Int64 // how long the last statement took, in ns
	sweeper     sweeper
}

var _ backend.Backend = (*Backend)(nil)

// NewBackend returns a Backend that uses the pool, which it does not close. If options is nil, the defaults apply. It sends
// nothing: the first call shows whether the schema exists. Close the pool after the Backend.
func NewBackend(pool *pgxpool.Pool, options *BackendOptions) (*Backend, error) {
	var o BackendOptions
	if options != nil {
		o = *options
	}
	var p validate.Problems
	if pool == nil {
		p.Add("pool", nil, "must not be nil")
	}
	schema, err := migrations.SchemaName(o.Schema)
	p.Include("", err)
	if err := p.Err("weirpostgres"); err != nil {
		return nil, err
	}
	b := &Backend{
		pool: pool, schema: schema, channel: channelOf(schema), async: o.AsynchronousCommit,
		sql: newStatements(schema, o.AsynchronousCommit), prepares: keepsStatements(pool),
	}
	b.rejections.init()
	b.decisions = newDecisions(b)
	b.sweeper.init(b, !o.NoSweep)
	return b, nil
}

// Connections returns how many connections the pool can have.
func (b *Backend) Connections() int { return int(b.pool.Stat().MaxConns()) }

// Close ends what the Backend does in the background, and waits for it. It does not close the pool.
func (b *Backend) Close() error {
	b.sweeper.close()
	return nil
}

// query sends a statement that must return n rows, and calls row for each.
func (b *Backend) query(ctx context.Context, what, sql string, args []any, n int, row func(i int, rows pgx.Rows) error) error {
	got, err := b.queryAny(ctx, what, sql, args, func(i int, rows pgx.Rows) error {
		if i >= n {
			return nil
		}
		return row(i, rows)
	})
	if err == nil && got != n {
		err = b.explain(what, fmt.Errorf("the statement returned %d rows, want %d", got, n))
	}
	return err
}

// queryAny sends a statement, calls row for each of its rows, and returns how many there were. A statement that was ended by a
// deadlock or a serialization failure has done nothing, and is sent once more; then row is called again from 0 on.
func (b *Backend) queryAny(ctx context.Context, what, sql string, args []any, row func(i int, rows pgx.Rows) error) (got int, err error) {
	begun := time.Now()
	got, err = b.queryOnce(ctx, sql, args, row)
	b.took.Store(int64(time.Since(begun)))
	if repeatable(err) {
		got, err = b.queryOnce(ctx, sql, args, row)
	}
	return got, b.explain(what, err)
}

func (b *Backend) queryOnce(ctx context.Context, sql string, args []any, row func(i int, rows pgx.Rows) error) (got int, err error) {
	conn, err := b.connection(ctx, sql)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	got, err = queryOn(ctx, conn, sql, args, row)
	if s := statementsOf(conn); codeOf(err) == undefinedStatement && !s.lost { // nothing was done
		s.lost = true
		got, err = queryOn(ctx, conn, sql, args, row)
	}
	if codeOf(err) == featureNotSupported { // the statement now returns other columns
		closeConn(conn.Conn())
	}
	return got, err
}

func queryOn(ctx context.Context, conn *pgxpool.Conn, sql string, args []any, row func(i int, rows pgx.Rows) error) (got int, err error) {
	if s := statementsOf(conn); s.lost {
		if err := s.forget(ctx, conn, sql); err != nil {
			return 0, err
		}
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); got++ {
		if err := row(got, rows); err != nil {
			return got, err
		}
	}
	return got, rows.Err()
}
