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
	// echoWait bounds how long a notice of this connection takes to come back. Behind PgBouncer in transaction mode it
	// never does.
	echoWait = 2 * time.Second
	// checkAfter is the time without notices after which the connection is checked, because a lost connection can look
	// like one without notices.
	checkAfter = 20 * time.Second
	checkWait  = 5 * time.Second // bounds a check
	closeWait  = time.Second     // bounds closing a connection
)

// Listen implements [backend.Backend]. It takes a connection out of the pool, which can open another one for it.
func (b *Backend) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
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

func (b *Backend) listenOn(ctx context.Context, conn *pgx.Conn, ready func(), notice func(backend.Notice)) error {
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{b.channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if err := b.echo(ctx, conn); err != nil {
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

// echo checks that notices arrive: it sends one and waits for it. Other notices that arrive meanwhile are dropped,
// because they are about changes before Listen was ready.
func (b *Backend) echo(ctx context.Context, conn *pgx.Conn) error {
	ours := "e" + rand.Text()
	if _, err := b.pool.Exec(ctx, b.sql.notify, b.channel, ours); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, echoWait)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return fmt.Errorf("%w: no notice arrived within %v, perhaps because of a pooler in transaction mode", errors.ErrUnsupported, echoWait)
		case err != nil:
			return err
		case n.Payload == ours:
			return nil
		}
	}
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
