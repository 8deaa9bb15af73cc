// Partner puts one limit on two instances of a service through PostgreSQL, sends each a load of its own, and counts whether the
// limit holds.
//
//	go run ./examples/partner                       # a minute
//	go run ./examples/partner -for 10m              # the demo's ten minutes
//	go run ./examples/partner -variant exclusion    # a limiter in plain SQL instead: nowait, exclusion or upsert
//
// The service has two routes: POST /items/create is free, and GET /items/{user} may be called once in two seconds for each
// user. Each instance is a process of its own, and gets 5 requests a second, then rising to 50, then 100. The program prints sixty
// rows, and at the end the successes against the allowed number and how long the requests took. It ends with status 1 if one
// success too many was granted, and with 2 if it could not find out.
//
// PostgreSQL is the server that WEIR_POSTGRES_URL names, or else one that is started from PATH and stopped at the
// end. In a server that is named, the program uses a schema of its own, which it drops at the end.
//
// The parts can be run alone, as deploy/ does:
//
//	partner serve -listen :8080 -postgres URL       # an instance; its metrics for Prometheus are at /metrics
//	partner load -targets URL,URL
//
// An instance logs lines of JSON. If OTEL_EXPORTER_OTLP_ENDPOINT is set, it exports a trace of each request.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/tools/testserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the command line and returns the status to end with.
func command(ctx context.Context, arguments []string, out, errOut io.Writer) int {
	name := "demo"
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		name, arguments = arguments[0], arguments[1:]
	}
	l := newLoad(out)
	o := serveOptions{logger: slog.New(slog.NewJSONHandler(errOut, nil))}
	flags := flag.NewFlagSet("partner", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.DurationVar(&l.length, "for", time.Minute, "demo, load: how long the load lasts: the demo's ten minutes are scaled to it, and its rates stay")
	flags.TextVar(&o.variant, "variant", variants[0], "demo, serve: the limiter: "+variantNames())
	flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "serve: the `address` to listen on")
	flags.StringVar(&o.postgres, "postgres", os.Getenv(postgresURL), "serve: the `URL` of PostgreSQL (default "+postgresURL+")")
	flags.StringVar(&o.schema, "schema", "partner", "serve: the schema of the tables, which is created if it does not exist")
	flags.StringVar(&o.name, "name", "one", "serve: the instance's `name` in logs and traces")
	targets := flags.String("targets", "", "load: the `URLs` of the instances, with commas between; each gets a load of its own")
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0 || l.length < time.Millisecond || l.length > time.Hour:
		err = fmt.Errorf("unexpected arguments %q, or -for %v, which is not from 1ms to 1h0m0s", flags.Args(), l.length)
	case name == "demo":
		err = demo(ctx, l, o.variant)
	case name == "serve":
		err = serve(ctx, o, func(a net.Addr) { fmt.Fprintf(out, "%v\n", a) })
	case name == "load":
		for i, url := range strings.Split(*targets, ",") {
			l.targets = append(l.targets, target{fmt.Sprint(i + 1), strings.TrimRight(url, "/")})
		}
		err = l.measure(ctx)
	default:
		err = fmt.Errorf("%q is no command: the commands are serve and load, and none for the demo", name)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTooMany):
		fmt.Fprintf(out, "FAILED: %v\n", err)
		return 1
	default:
		fmt.Fprintf(errOut, "partner: %v\n", err)
		return 2
	}
}

// demo starts PostgreSQL and two instances, and sends them their loads.
func demo(ctx context.Context, l *load, v variant) (err error) {
	server, err := testserver.StartPostgres(ctx)
	if err != nil {
		return fmt.Errorf("this example needs PostgreSQL: %w", err)
	}
	defer server.Stop()
	schema := "partner_" + strings.ToLower(rand.Text()[:10])
	defer func() {
		err = errors.Join(err, inPostgres(ctx, server.URL, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "drop schema if exists "+schema+" cascade")
			return err
		}))
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"one", "two"} {
		instance, err := testserver.Start(ctx, func(address string) (*exec.Cmd, error) {
			c := exec.Command(self, "serve", "-listen", address, "-name", name, "-schema", schema, "-variant", v.name)
			c.Env = []string{postgresURL + "=" + server.URL}
			return c, nil
		})
		if err != nil {
			return err
		}
		defer instance.Stop()
		l.targets = append(l.targets, target{name, instance.URL})
	}
	fmt.Fprintf(l.out, "Two instances share one limit through PostgreSQL. The limiter is %s: %s.\n", v.name, v.about)
	before := written(ctx, server.URL)
	err = l.measure(ctx)
	fmt.Fprintf(l.out, "PostgreSQL wrote %.1f kB to its log.\n", float64(written(ctx, server.URL)-before)/1e3)
	return err
}

// written returns how many bytes PostgreSQL has written to its log, or 0 if it does not say.
func written(ctx context.Context, url string) (bytes int64) {
	_ = inPostgres(ctx, url, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	})
	return bytes
}

// inPostgres calls f with a connection, also if ctx is done, for at most ten seconds.
func inPostgres(ctx context.Context, url string, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(ctx, c)
}
