package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/tools/testserver"
)

// demoCommand is "partner": PostgreSQL, two instances, and their loads.
func demoCommand(ctx context.Context, flags *flag.FlagSet, arguments []string, out, errOut io.Writer) (err error) {
	l := newLoad(flags)
	variantName := flags.String("variant", "weir", "the limiter: "+variantNames())
	log := flags.Bool("log", false, "let the instances log to standard error")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	v, err := variantByName(*variantName)
	if err != nil {
		return err
	}
	if err := l.check(); err != nil { // before anything is started
		return err
	}
	server, err := testserver.StartPostgres(ctx)
	if err != nil {
		return fmt.Errorf("this example needs PostgreSQL: %w", err)
	}
	defer server.Stop()
	whose := "the server of " + postgresURL
	if server.Own() {
		whose = "a PostgreSQL that was started for this run"
	}
	level := "ERROR+4" // above all lines
	if *log {
		level = "INFO"
	}
	schema := "partner_" + strings.ToLower(rand.Text()[:10])
	defer func() {
		left := withConnection(ctx, server.URL, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, inSchema("drop schema if exists SCHEMA cascade", schema))
			return err
		})
		if err == nil { // else the cause is known, and perhaps there is no server
			err = left
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var children sync.WaitGroup
	defer children.Wait()
	for i := range 2 {
		c, err := startChild(ctx, errOut, instanceName(i), server.URL, "-schema", schema, "-variant", v.name, "-log-level", level)
		if err != nil {
			return err
		}
		defer c.stop()
		children.Go(func() { cancel(c.wait()) }) // ends the load, if it is under way
		l.targets = append(l.targets, c.target)
	}
	fmt.Fprintf(out, "Two instances share one limit through %s.\n", whose)
	fmt.Fprintf(out, "The limiter is %s: %s.\n", v.name, v.about)
	l.introduce(out)
	before := logged(ctx, server.URL)
	return l.measure(ctx, out, func() {
		if after := logged(ctx, server.URL); before >= 0 && after >= before {
			fmt.Fprintf(out, "PostgreSQL wrote %.1f kB to its log, for %d calls of the limiter.\n", float64(after-before)/1e3, l.asked())
		}
	})
}

// logged returns how many bytes PostgreSQL has written to its log, or -1 if it does not say.
func logged(ctx context.Context, url string) (bytes int64) {
	err := withConnection(ctx, url, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	})
	if err != nil { // a standby, or a role that may not
		return -1
	}
	return bytes
}

// withConnection calls f with a connection, also if ctx is done, for at most ten seconds.
func withConnection(ctx context.Context, url string, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(ctx, c)
}

// A child is an instance that this program has started: the same program again, as a process of its own. It ends when its
// standard input ends, so it does not outlive this process, whatever this process dies of.
type child struct {
	target
	cmd     *exec.Cmd
	stdin   io.Closer
	stopped func() bool
}

// startChild starts "partner serve" and waits until it listens.
func startChild(ctx context.Context, errOut io.Writer, name, postgres string, arguments ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"serve", "-with-parent", "-name", name}, arguments...)...)
	cmd.Env = append(os.Environ(), postgresURL+"="+postgres)
	cmd.Stderr = errOut
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin, target: target{name: name}}
	c.stopped = context.AfterFunc(ctx, func() { _ = stdin.Close() })
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = stdin.Close()
		return nil, errors.Join(context.Cause(ctx), c.wait())
	}
	c.url = "http://" + strings.TrimSpace(address)
	return c, nil
}

// stop has the child end, and kills it if it takes too long.
func (c *child) stop() {
	c.stopped()
	_ = c.stdin.Close()
	time.AfterFunc(2*callTimeout, func() { _ = c.cmd.Process.Kill() })
}

// wait returns the error of a child that has ended by itself.
func (c *child) wait() error {
	err := c.cmd.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("instance %s has ended by itself (%w)", c.name, err)
}
