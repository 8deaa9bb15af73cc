// Partner puts one limit on two instances of a service through PostgreSQL, sends each a load of its own, and counts whether the
// limit holds.
//
//	go run ./examples/partner                       # a minute
//	go run ./examples/partner -for 10m              # the demo's ten minutes
//	go run ./examples/partner -variant exclusion    # a limiter in plain SQL instead: nowait, exclusion or upsert
//
// The service has two routes: POST /items/create is free, and GET /items/{user} may be called once in two seconds for each
// user. Each instance is a process of its own, and gets 5 requests a second, then rising to 50, then 100. The
// program prints sixty rows, one for each second of a minute, and at the end the successes against the allowed number, and
// how long the limiter and the requests took. It ends with status 1 if one success too many was granted, with 2 if it was
// called wrongly, and with 3 if it could not finish.
//
// PostgreSQL is the server that WEIR_POSTGRES_URL names, or else one that is started from PATH or by Docker
// and stopped at the end. In a server that is named, the program uses a schema of its own, which it drops at the end.
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
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The statuses that the program ends with.
const (
	limitHeld = iota
	limitBroken
	wrongUsage
	notFinished
)

// postgresURL is the environment variable with the URL of PostgreSQL. A flag shows its value, which can have a password, to
// all users of the machine.
const postgresURL = "WEIR_POSTGRES_URL"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// command runs the command line and returns the status to end with.
func command(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	name, run := "partner", demoCommand
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		name, arguments = arguments[0], arguments[1:]
		switch name {
		case "serve":
			run = serveCommand(in)
		case "load":
			run = loadCommand
		default:
			run = func(context.Context, *flag.FlagSet, []string, io.Writer, io.Writer) error {
				return usage("%q is no command: the commands are serve and load, and none for the demo", name)
			}
		}
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(errOut)
	err := run(ctx, flags, arguments, out, errOut)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return limitHeld
	}
	fmt.Fprintf(errOut, "partner: %v\n", err)
	switch {
	case errors.Is(err, errTooMany):
		return limitBroken
	case errors.As(err, new(usageError)):
		return wrongUsage
	default:
		return notFinished
	}
}

// A usageError is an error of the command line.
type usageError struct{ error }

func usage(format string, arguments ...any) error {
	return usageError{fmt.Errorf(format, arguments...)}
}

func parse(flags *flag.FlagSet, arguments []string) error {
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return usageError{err}
	case flags.NArg() > 0:
		return usage("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// serveCommand is "partner serve": one instance.
func serveCommand(in io.Reader) func(context.Context, *flag.FlagSet, []string, io.Writer, io.Writer) error {
	return func(ctx context.Context, flags *flag.FlagSet, arguments []string, out, errOut io.Writer) (err error) {
		var o serveOptions
		flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "the `address` to listen on")
		flags.StringVar(&o.postgres, "postgres", os.Getenv(postgresURL), "the `URL` of PostgreSQL (default "+postgresURL+")")
		flags.StringVar(&o.schema, "schema", "partner", "the schema of the tables, which is created if it does not exist")
		flags.StringVar(&o.name, "name", "one", "the instance's `name` in logs and traces")
		variantName := flags.String("variant", "weir", "the limiter: "+variantNames())
		level := slog.LevelInfo
		flags.TextVar(&level, "log-level", level, "the least level of the lines on standard error")
		withParent := flags.Bool("with-parent", false, "end when standard input ends")
		if err := parse(flags, arguments); err != nil {
			return err
		}
		if o.variant, err = variantByName(*variantName); err != nil {
			return err
		}
		if o.postgres == "" || o.schema == "" {
			return usage("-schema must not be empty, and -postgres or %s must be the URL of a PostgreSQL server", postgresURL)
		}
		o.logger = slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: level}))
		if *withParent {
			signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which ends this process when it is ready to
			ending, stop := context.WithCancel(ctx)
			defer stop()
			ctx = ending
			go func() {
				_, _ = io.Copy(io.Discard, in)
				stop()
			}()
		}
		return serve(ctx, o, func(a net.Addr) { fmt.Fprintf(out, "%v\n", a) })
	}
}

// loadCommand is "partner load": a load for instances that run already.
func loadCommand(ctx context.Context, flags *flag.FlagSet, arguments []string, out, _ io.Writer) error {
	l := newLoad(flags)
	urls := flags.String("targets", "", "the `URLs` of the instances, with commas between; each gets a load of its own; required")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	for i, text := range strings.Split(*urls, ",") {
		text = strings.TrimRight(text, "/")
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usage("-targets must be URLs such as http://127.0.0.1:8080, got %q", *urls)
		}
		l.targets = append(l.targets, target{instanceName(i), text})
	}
	if err := l.check(); err != nil {
		return err
	}
	l.introduce(out)
	return l.measure(ctx, out, func() {})
}

func instanceName(i int) string {
	if names := []string{"one", "two", "three", "four"}; i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i + 1)
}

// newLoad returns a load whose length and rows flags say.
func newLoad(flags *flag.FlagSet) *load {
	l := &load{}
	flags.DurationVar(&l.length, "for", time.Minute, "how long the load lasts: the demo's ten minutes are scaled to it, and its rates stay")
	flags.DurationVar(&l.every, "every", 0, "how long a row of the table is (default a sixtieth of the load)")
	return l
}
