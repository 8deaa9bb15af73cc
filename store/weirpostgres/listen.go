package weirpostgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

const (
	// echoWait bounds how long a notice of this connection takes to come back. Behind a pooler in transaction mode it
	// never does.
	echoWait = 2 * time.Second
	// checkAfter is the time without notices after which the connection is checked, because a lost connection can look
	// like one without notices.
	checkAfter = 20 * time.Second
	checkWait  = 5 * time.Second // bounds a check
	closeWait  = time.Second     // bounds closing a connection
)

// Listen implements [backend.Backend]. It takes a connection out of the pool, which can open another one for it. If the
// pool's configuration has OnNotification, pgx gives notices to that function only, and Listen is not supported.
func (b *Backend) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	if b.pool.Config().ConnConfig.OnNotification != nil {
		return b.explain("listen", fmt.Errorf("%w: the pool's configuration has OnNotification", errors.ErrUnsupported))
	}
	pooled, err := b.pool.Acquire(ctx)
	if err != nil {
		return b.explain("listen", err)
	}
	conn := pooled.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	err = b.listenOn(ctx, conn, ready, notice)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return b.explain("listen", err)
}

func (db *database) listenOn(ctx context.Context, conn *pgx.Conn, ready func(), notice func(backend.Notice)) error {
	if err := db.echo(ctx, conn); err != nil {
		return err
	}
	if err := onChannel(ctx, conn, "listen", channelOf(db.schema)); err != nil {
		return err
	}
	ready()
	for {
		payload, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if n, ok := parseNotice(payload); ok {
			notice(n)
		}
	}
}

// onChannel sends listen or unlisten.
func onChannel(ctx context.Context, conn *pgx.Conn, command, channel string) error {
	_, err := conn.Exec(ctx, command+" "+pgx.Identifier{channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
	return err
}

// echo checks that notices arrive. It uses a channel of its own, on which nothing else is ever sent: behind a pooler in
// transaction mode, a session of the pooler listens, and its notices go to whatever client has the session. pgx keeps
// notices that nothing reads as long as the connection lives.
func (db *database) echo(ctx context.Context, conn *pgx.Conn) error {
	channel := "weir_" + rand.Text()
	if err := onChannel(ctx, conn, "listen", channel); err != nil {
		return err
	}
	sent, err := db.pool.Exec(ctx, db.sql.echo, pgx.QueryExecModeExec, channel)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, echoWait) // not before: the pool can take long to give out a connection
	defer cancel()
	if sent.RowsAffected() > 0 { // otherwise the pool's connection is in the session that listens
		_, err = conn.WaitForNotification(waiting)
		if err == nil || waiting.Err() == nil || ctx.Err() != nil {
			return err
		}
	}
	// The session that listens is most likely the one that the pooler gives out next. If nothing answers, or the notice has come by
	// then, the network is the cause, and not a pooler.
	ending, cancel := context.WithTimeout(ctx, echoWait)
	defer cancel()
	for range 5 {
		if err := onChannel(ending, conn, "unlisten", channel); err != nil {
			return err
		}
	}
	if _, err := conn.WaitForNotification(waiting); err == nil { // it does not wait any more
		return nil
	}
	return fmt.Errorf("%w: no notices arrive, perhaps because of a pooler in transaction mode", errors.ErrUnsupported)
}

// next waits for a notice, and checks the connection now and then.
func next(ctx context.Context, conn *pgx.Conn) (payload string, err error) {
	for {
		quiet, cancel := context.WithTimeout(ctx, checkAfter)
		n, err := conn.WaitForNotification(quiet)
		over := quiet.Err() != nil
		cancel()
		if err == nil {
			return n.Payload, nil
		}
		if !over || ctx.Err() != nil {
			return "", err
		}
		check, cancel := context.WithTimeout(ctx, checkWait)
		err = conn.Ping(check)
		cancel()
		if err != nil {
			return "", err
		}
	}
}

// channelOf returns the channel of a schema, as the function send_notice has it.
func channelOf(schema string) string { return pgmigrate.InSchema(`weir:"weir"`, schema) }

// parseNotice parses what the function send_notice has sent: d (a new definition) or r (a release), the name and the key
// in base64.
func parseNotice(payload string) (n backend.Notice, ok bool) {
	if payload == "" || payload[0] != 'd' && payload[0] != 'r' {
		return n, false
	}
	name, key, ok := strings.Cut(payload[1:], ".")
	if !ok {
		return n, false
	}
	nameBytes, err := base64.StdEncoding.DecodeString(name)
	keyBytes, keyErr := base64.StdEncoding.DecodeString(key)
	if err != nil || keyErr != nil {
		return n, false
	}
	return backend.Notice{Name: string(nameBytes), Key: string(keyBytes), Released: payload[0] == 'r'}, true
}
