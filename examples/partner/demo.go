package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/tools/testserver"
)

// A demoRun is "partner": PostgreSQL, two instances, and their loads.
type demoRun struct {
	loadFlags
	variant  variant
	postgres string
	listen   []string
	log      io.Writer
	out      io.Writer
}

func demoCommand(ctx context.Context, arguments []string, out, errOut io.Writer) (err error) {
	flags := flag.NewFlagSet("partner", flag.ContinueOnError)
	d := demoRun{log: io.Discard, out: out}
	d.register(flags)
	full := flags.Bool("full", false, "the demo's ten minutes; the same as -for 10m")
	variantName := flags.String("variant", "weir", "the limiter: "+variantNames())
	flags.StringVar(&d.postgres, "postgres", "", "the `URL` of PostgreSQL (default "+postgresURL+", or a server that is started for the run)")
	listen := flags.String("listen", "127.0.0.1:0,127.0.0.1:0", "the `addresses` of the two instances, whose /metrics Prometheus can scrape")
	logFile := flags.String("log", "", "a `file` for the logs of the instances, as lines of JSON")
	if err := parse(flags, arguments, errOut); err != nil {
		return err
	}
	if d.variant, err = variantByName(*variantName); err != nil {
		return &usageError{err}
	}
	if *full {
		d.length = demo.length()
	}
	if d.listen = strings.Split(*listen, ","); len(d.listen) != 2 {
		return usage("-listen must have two addresses with a comma between, got %q", *listen)
	}
	if *logFile != "" {
		file, err := os.OpenFile(*logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return &usageError{err}
		}
		defer file.Close()
		d.log = file
	}
	if _, err := d.loads(nil, nil); err != nil { // before anything is started
		return err
	}
	return d.run(ctx)
}

func (d *demoRun) run(ctx context.Context) (err error) {
	url, whose, stop, err := d.findPostgres(ctx)
	if err != nil {
		return err
	}
	defer stop()
	schema := "partner_" + strings.ToLower(rand.Text()[:10])
	defer func() {
		if left := dropSchema(ctx, url, schema); err == nil { // else the cause is known, and perhaps there is no server
			err = left
		}
	}()
	var children []*child
	defer func() { stopAll(children) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for i, address := range d.listen {
		c, err := startChild(ctx, instanceName(i), url, d.log,
			"-listen", address, "-schema", schema, "-variant", d.variant.name, "-log-level", d.logLevel())
		if err != nil {
			return err
		}
		children = append(children, c)
		go func() {
			<-c.ended
			cancel(c.failed()) // ends the load, if it is under way
		}()
	}
	var targets []target
	for _, c := range children {
		targets = append(targets, c.target)
	}
	all, err := d.loads(targets, nil)
	if err != nil {
		return err
	}
	d.introduce(all, whose)
	before := d.readLog(ctx, url)
	r, err := d.measure(ctx, all, d.variant, d.out)
	if r == nil {
		return err
	}
	if after := d.readLog(ctx, url); before >= 0 && after >= before {
		written := after - before
		r.WALBytes = &written
	}
	return errors.Join(err, d.conclude(r, d.out))
}

// logLevel is the level of the children's logs: everything if they go to a file.
func (d *demoRun) logLevel() string {
	if d.log == io.Discard {
		return "error"
	}
	return "info"
}

// findPostgres returns the URL of the server, what to call it, and a function that stops it if it was started here.
func (d *demoRun) findPostgres(ctx context.Context) (url, whose string, stop func(), err error) {
	if d.postgres != "" {
		return d.postgres, "the server of -postgres", func() {}, nil
	}
	server, err := testserver.StartPostgres(ctx)
	if err != nil {
		return "", "", nil, fmt.Errorf("this example needs PostgreSQL: %w", err)
	}
	if server.Own() {
		return server.URL, "a PostgreSQL that was started for this run", server.Stop, nil
	}
	return server.URL, "the server of " + postgresURL, server.Stop, nil
}

func (d *demoRun) introduce(all *loads, whose string) {
	if d.json {
		return
	}
	fmt.Fprintf(d.out, "Two instances share one limit through %s.\n", whose)
	fmt.Fprintf(d.out, "The limiter is %s: %s.\n", d.variant.name, d.variant.about)
	all.introduce(d.out)
}

// introduce prints what is sent, and where to.
func (l *loads) introduce(out io.Writer) {
	for _, t := range l.targets {
		fmt.Fprintf(out, "  %s: %s, metrics at %s/metrics\n", t.name, t.url, t.url)
	}
	fmt.Fprintf(out, "Each gets %d GET /items/{user}: %s; and %d POST /items/create.\n", l.gets.requests(), l.gets, l.posts.requests())
	fmt.Fprintf(out, "%s may have a GET every %v, so %d of %d can succeed.\n\n", userNames(l.users), interval,
		allowed(l.gets.length()-1)*len(l.users), len(l.targets)*l.gets.requests())
}

func userNames(users []string) string {
	if len(users) == 1 {
		return users[0]
	}
	return fmt.Sprintf("Each of %d users", len(users))
}

// readLog returns how many bytes PostgreSQL has written to its log, or -1 if it does not say.
func (d *demoRun) readLog(ctx context.Context, url string) (bytes int64) {
	err := withConnection(ctx, url, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	})
	if err != nil { // a standby, or a role that may not
		return -1
	}
	return bytes
}

func dropSchema(ctx context.Context, url, schema string) error {
	return withConnection(ctx, url, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, inSchema("drop schema if exists SCHEMA cascade", schema))
		return err
	})
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
