// Partner puts one limit on two instances of a service through PostgreSQL, sends each a load of its own, and counts whether the
// limit holds.
//
//	go run ./examples/partner                       # a minute
//	go run ./examples/partner -full                 # the demo's ten minutes
//	go run ./examples/partner -variant exclusion    # a limiter in plain SQL instead: nowait, exclusion or upsert
//
// The service has two routes: POST /items/create is free, and GET /items/{user} may be called once in two seconds for each
// user. Each instance is a process of its own, and gets 5 requests a second, then rising to 50, then 100. The
// program prints sixty rows, one for each second of a minute, and at the end the successes against the allowed number, and
// how long the limiter and the requests took. It ends with status 1 if one success too many was granted, with 2 if it was
// called wrongly, and with 3 if it could not finish.
//
// PostgreSQL is the server that -postgres or WEIR_POSTGRES_URL names, or else one that is started from PATH or by Docker
// and stopped at the end. In a server that is named, the program uses a schema of its own, which it drops at the end.
//
// The parts can be run alone, as deploy/ does:
//
//	partner serve -listen :8080 -postgres URL       # an instance; its metrics for Prometheus are at /metrics
//	partner load -targets URL,URL -rate 20 -requests 100 -json
//
// An instance logs lines of JSON. If OTEL_EXPORTER_OTLP_ENDPOINT is set, it exports a trace of each request.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// The statuses that the program ends with.
const (
	limitHeld = iota
	limitBroken
	wrongUsage
	notFinished
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	ignoreBrokenPipe()
	os.Exit(command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// command runs the command line and returns the status to end with.
func command(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := dispatch(ctx, arguments, in, &stopper{out, cancel}, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return limitHeld
	}
	if err != nil {
		fmt.Fprintf(errOut, "partner: %v\n", err)
	}
	switch {
	case err == nil:
		return limitHeld
	case errors.Is(err, errTooMany):
		return limitBroken
	case errors.As(err, new(*usageError)):
		return wrongUsage
	default:
		return notFinished
	}
}

func dispatch(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) error {
	if len(arguments) > 0 {
		switch arguments[0] {
		case "serve":
			return serveCommand(ctx, arguments[1:], in, out, errOut)
		case "load":
			return loadCommand(ctx, arguments[1:], out, errOut)
		}
	}
	return demoCommand(ctx, arguments, out, errOut)
}

// A usageError is an error of the command line.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usage(format string, arguments ...any) error {
	return &usageError{fmt.Errorf(format, arguments...)}
}

// parse parses the flags of a command.
func parse(flags *flag.FlagSet, arguments []string, errOut io.Writer) error {
	flags.SetOutput(errOut)
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return &usageError{err}
	case flags.NArg() > 0:
		return usage("unexpected argument %q; the commands are serve and load, and no command for the demo", flags.Arg(0))
	}
	return nil
}

// A stopper ends the program when its output cannot be written.
type stopper struct {
	io.Writer
	stop context.CancelCauseFunc
}

func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		s.stop(fmt.Errorf("write the output: %w", err))
	}
	return n, err
}
