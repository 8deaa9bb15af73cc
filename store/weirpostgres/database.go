package weirpostgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/internal/recovered"
)

// A database sends statements to a schema.
type database struct {
	pool   *pgxpool.Pool
	schema string
	sql    statements
	// prepares reports whether the pool keeps prepared statements.
	prepares bool
}

func newDatabase(pool *pgxpool.Pool, schema string, async bool) *database {
	mode := pool.Config().ConnConfig.DefaultQueryExecMode
	return &database{pool: pool, schema: schema, sql: newStatements(schema, async), prepares: mode == pgx.QueryExecModeCacheStatement}
}

// anyRows stands for the number of rows of a statement that can return any.
const anyRows = -1

// query sends a statement that must return n rows, and calls row for each. A statement that was ended by a deadlock or a
// serialization failure has done nothing, and is sent once more; then row is called again from 0 on.
func (db *database) query(ctx context.Context, what, sql string, args []any, n int, row func(i int, rows pgx.Rows) error) error {
	got, err := db.queryOnce(ctx, sql, args, n, row)
	if repeatable(err) {
		got, err = db.queryOnce(ctx, sql, args, n, row)
	}
	if err == nil && n != anyRows && got != n {
		err = fmt.Errorf("the statement returned %d rows, want %d", got, n)
	}
	return db.explain(what, err)
}

func (db *database) queryOnce(ctx context.Context, sql string, args []any, n int, row func(i int, rows pgx.Rows) error) (got int, err error) {
	conn, err := db.connection(ctx, sql)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	got, err = queryOn(ctx, conn, sql, args, n, row)
	if s := statementsOf(conn); codeOf(err) == undefinedStatement && !s.lost { // nothing was done
		s.lost = true
		got, err = queryOn(ctx, conn, sql, args, n, row)
	}
	return got, err
}

func queryOn(ctx context.Context, conn *pgxpool.Conn, sql string, args []any, n int, row func(i int, rows pgx.Rows) error) (got int, err error) {
	if statementsOf(conn).lost {
		sql += " " // of which pgx has no prepared statement
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); got++ {
		if n == anyRows || got < n {
			if err := row(got, rows); err != nil {
				return got, err
			}
		}
	}
	return got, rows.Err()
}

// A server that is far away needs more time than a call has. With a round trip of 200 ms and a CallTimeout of 500 ms, a
// call has time for two round trips. To prepare a statement takes one, and if the connection was idle, the pool sends a
// ping before. If the call ended during its third round trip, pgx would close the connection, and the next call would
// begin from the start. Therefore, statements are prepared on a goroutine that the end of the call does not stop. It
// hands the connection to the call or, if the call has ended, back to the pool.

const prepareTimeout = 10 * time.Second

// statementsOn is the key of a connection's custom data under which its prepared statements are noted.
const statementsOn = "github.com/weir-go/weir/store/weirpostgres"

// poolHooks names the pool's tracers and its other hooks in the log.
const poolHooks = "weirpostgres: hooks of the pool"

var errHook = errors.New("a hook of the pool has panicked or called runtime.Goexit")

// connection returns a connection on which the statement is prepared, if the pool and the session keep prepared
// statements.
func (db *database) connection(ctx context.Context, sql string) (*pgxpool.Conn, error) {
	conn, err := db.pool.Acquire(ctx)
	if err != nil || !db.prepares {
		return conn, err
	}
	if s := statementsOf(conn); s.lost || s.prepared[sql] {
		return conn, nil
	}
	begun, done, ended := time.Now(), make(chan error), ctx.Done()
	go func() {
		err := errHook
		defer func() { // deferred: the connection would be lost to the pool if a tracer called runtime.Goexit
			select {
			case done <- err:
			case <-ended:
				recovered.Call(poolHooks, conn.Release)
			}
		}()
		recovered.Call(poolHooks, func() { err = prepare(context.WithoutCancel(ctx), conn, sql) })
	}()
	select {
	case err = <-done:
	case <-ended:
		return nil, ctx.Err()
	}
	if end, ok := ctx.Deadline(); err == nil && ok && time.Until(end) < time.Since(begun) {
		err = fmt.Errorf("no time was left after the statement was prepared: %w", context.DeadlineExceeded)
	}
	if err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// sessionStatements are the statements that a Backend has prepared on a connection.
type sessionStatements struct {
	prepared map[string]bool
	// lost reports that the session does not keep statements: the program has sent "deallocate all", the pool sends
	// "discard all" when a connection is released, or a pooler changes the session. From then on, statements are sent
	// without being prepared.
	lost bool
}

func statementsOf(conn *pgxpool.Conn) *sessionStatements {
	data := conn.Conn().PgConn().CustomData()
	s, ok := data[statementsOn].(*sessionStatements)
	if !ok {
		s = &sessionStatements{prepared: map[string]bool{}}
		data[statementsOn] = s
	}
	return s
}

func prepare(ctx context.Context, conn *pgxpool.Conn, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	s := statementsOf(conn)
	_, err := conn.Conn().Prepare(ctx, sql, sql)
	if codeOf(err) == duplicateStatement { // behind a pooler, in a session in which another client has prepared it
		s.lost, err = true, nil
	} else if err == nil {
		s.prepared[sql] = true
	}
	return err
}

// explain adds the operation to err and, for some errors, what to do about it.
func (db *database) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch codeOf(err) {
	case undefinedSchema, undefinedTable, undefinedFunction, undefinedColumn:
		hint = fmt.Sprintf("schema %q is missing or older than this program: call Migrate, or run the files in the folder migrations: ", db.schema)
	case serializationFailure:
		hint = "sessions must be at isolation level read committed: "
	case lockNotAvailable:
		hint = "another session has a lock: "
	case readOnly:
		hint = "the server is read-only, a standby perhaps: "
	}
	return fmt.Errorf("weirpostgres: %s: %s%w", what, hint, err)
}
