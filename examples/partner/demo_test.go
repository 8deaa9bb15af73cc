package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/tools/testserver"
)

// The demo in four and a half seconds, with two processes on a real PostgreSQL.
func TestDemo(t *testing.T) {
	url := testserver.Postgres(t).URL
	t.Setenv(postgresURL, url)
	out, status := runCommand(t, "-for", "4500ms", "-every", "500ms", "-log")
	if status != limitHeld {
		t.Fatalf("status %d\n%s", status, out)
	}
	for _, want := range []string{
		"Two instances share one limit through the server of " + postgresURL,
		"The limiter is weir:",
		"user-1 may have a GET every 2s, so 3 of 448 can succeed",
		"   time   sent   ok    429 fail  open     p99   sent",
		"\n   0.5s  ", "\n   4.5s  ", "\nlimiter, granted  ", "\nlimiter, rejected  ", "\nPOST created             10",
		"to its log, for 448 calls of the limiter",
		"The limit held, ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	// On a machine that stands still for a moment it can be one less.
	if !regexp.MustCompile(`\nuser-1: ([23]) successes, and [23] are allowed`).MatchString(out) {
		t.Error(out)
	}
	if n := strings.Count(out, `"msg":"request"`); n != 448+10 {
		t.Errorf("the log has %d requests", n)
	}
	err := withConnection(t.Context(), url, func(ctx context.Context, c *pgx.Conn) error {
		var left int
		err := c.QueryRow(ctx, `select count(*) from pg_namespace where nspname like 'partner\_%'`).Scan(&left)
		if left > 0 {
			t.Errorf("%d schemas are left", left)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDemo_NoServer(t *testing.T) {
	t.Setenv(postgresURL, "postgres://user:secret@127.0.0.1:1/none")
	if out, status := runCommand(t); status != notFinished || strings.Contains(out, "secret") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestCommand_WrongUsage(t *testing.T) {
	t.Setenv(postgresURL, "")
	for _, c := range []struct{ arguments, want string }{
		{"-variant fast", `-variant must be one of weir, nowait, exclusion, upsert, got "fast"`},
		{"-for 2h", "the load must last from 1ms to 1h0m0s, got 2h0m0s"},
		{"-for 0", "the load must last from 1ms"},
		{"-every 1ns", "-every must be at least 10ms, got 1ns"},
		{"-fast", "flag provided but not defined"},
		{"run", `"run" is no command`},
		{"serve", postgresURL + " must be the URL"},
		{"serve extra", `unexpected argument "extra"`},
		{"load", "-targets must be URLs such as http://127.0.0.1:8080"},
		{"load -targets 127.0.0.1:80", "-targets must be URLs such as http://127.0.0.1:8080"},
	} {
		if out, status := runCommand(t, strings.Fields(c.arguments)...); status != wrongUsage || !strings.Contains(out, c.want) {
			t.Errorf("%s: status %d, %s", c.arguments, status, out)
		}
	}
	if out, status := runCommand(t, "-h"); status != limitHeld || !strings.Contains(out, "-variant") {
		t.Errorf("status %d, %s", status, out)
	}
}

// runCommand runs the program in this process.
func runCommand(t *testing.T, arguments ...string) (out string, status int) {
	t.Helper()
	var text, errs locked
	status = command(t.Context(), arguments, strings.NewReader(""), &text, &errs)
	return text.text.String() + errs.text.String(), status
}

// locked is a buffer for the lines of two instances.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}
