// Jobs shows throttled background jobs on River in two small programs.
//
//	go run ./examples/jobs           # a newsletter for three tenants
//	go run ./examples/jobs -batch    # three batches, one after the other
//
// The newsletter goes through a dynamic window: 24 mails every two seconds, over all
// tenants. The first tenant is alone and has all of them. When others join, each gets
// its part, and when a tenant is done, the parts of the others grow again.
//
// The batches share a mutex. The first job of a batch takes it and the last one
// releases it, so that the jobs of two batches are never mixed.
//
// Both need PostgreSQL: the server that WEIR_POSTGRES_URL names, or else one that is
// started from PATH and stopped at the end. Their tables are in a new schema,
// which is dropped at the end and on Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/weir-go/weir/jobs"
	"github.com/weir-go/weir/tools/testserver"
)

func main() {
	batch := flag.Bool("batch", false, "run three batches, one after the other")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, os.Stdout, *batch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, batch bool) error {
	server, err := testserver.StartPostgres(ctx)
	if err != nil {
		return fmt.Errorf("this example needs PostgreSQL: %w", err)
	}
	defer server.Stop()
	if batch {
		return start(ctx, server.URL, &batches{
			out: out, names: []string{"spring", "summer", "autumn"}, parts: 8, work: 400 * time.Millisecond,
		})
	}
	return start(ctx, server.URL, &newsletter{
		out:    out,
		window: jobs.Definition{DynamicWindow: "newsletter", Interval: 2 * time.Second, Capacity: 24},
		tenants: []tenant{
			{name: "acme", mails: 120},
			{name: "globex", mails: 60, joins: 3 * time.Second},
			{name: "initech", mails: 24, joins: 7 * time.Second},
		},
	})
}
