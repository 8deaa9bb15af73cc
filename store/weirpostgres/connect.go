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
func (b *Backend) connection(ctx context.Context, sql string) (*pgxpool.Conn, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil || !b.prepares {
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

// forget makes pgx forget a prepared statement, which it would use otherwise.
func (s *sessionStatements) forget(ctx context.Context, conn *pgxpool.Conn, sql string) error {
	if !s.prepared[sql] {
		return nil
	}
	delete(s.prepared, sql)
	return conn.Conn().Deallocate(ctx, sql)
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = conn.Close(ctx) // the pool makes another one
}
