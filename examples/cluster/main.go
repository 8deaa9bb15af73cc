// Cluster runs three instances of a small service, each a process of its own, that share one
// limiter: 60 calls every two seconds, for all of them together. It floods them, prints the
// share of each and the exact total of every window, kills one with SIGKILL, and goes on with
// the others.
//
//	go run ./examples/cluster
//
// The limiter's state is in Redis or PostgreSQL: in the server that WEIR_REDIS_URL or
// WEIR_POSTGRES_URL names, or else in one that is started from PATH or by Docker and stopped
// at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/weir-go/weir/limiter"
)

// rule is the limit that the instances share. That it is shared is said only in instance.go,
// where the limiter is made.
var rule = limiter.FixedWindowOptions{PermitLimit: 60, Window: 2 * time.Second}

const (
	instances = 3
	before    = 2  // windows until one is killed
	after     = 2  // windows after that
	calls     = 60 // to each instance, in each window: more than there are permits for
	callers   = 4  // of each instance
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) == 3 && os.Args[1] == "instance" {
		err = serve(ctx, os.Args[2], os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	url, stop, err := findStore(ctx)
	if err != nil {
		return err
	}
	defer stop()
	all, err := start(ctx, url, instances)
	defer all.stop()
	defer http.DefaultClient.CloseIdleConnections()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d instances share %d calls every %v, through %s\n\n", instances, rule.PermitLimit, rule.Window, scheme(url))
	table := &table{w: w}
	table.head(all)
	if err := table.windows(ctx, all, before); err != nil {
		return err
	}
	fmt.Fprintf(w, "        kill -9 of %s\n", all[1].name)
	if err := all[1].kill(); err != nil {
		return err
	}
	if err := table.windows(ctx, all, after); err != nil {
		return err
	}
	return table.verdict()
}

// A table prints a line for each window.
type table struct {
	w       io.Writer
	lines   int
	inexact int
}

func (t *table) head(all fleet) {
	_, _ = fmt.Fprint(t.w, "window")
	for _, i := range all {
		fmt.Fprintf(t.w, "%10s", i.name)
	}
	_, _ = fmt.Fprintln(t.w, "     total")
}

// windows floods the instances at the beginning of each of n windows. If the machine is busy
// and a flood takes longer than its window, it has taken permits of two windows and does not
// count.
func (t *table) windows(ctx context.Context, all fleet, n int) error {
	for n > 0 {
		if err := all.awaitWindow(ctx); err != nil {
			return err
		}
		began := time.Now()
		shares, err := all.flood(ctx, calls)
		if err != nil {
			return err
		}
		if time.Since(began) < rule.Window*9/10 {
			t.line(all, shares)
			n--
		}
	}
	return nil
}

func (t *table) line(all fleet, shares []int) {
	t.lines++
	total := 0
	fmt.Fprintf(t.w, "%6d", t.lines)
	for i, share := range shares {
		total += share
		if all[i].killed {
			fmt.Fprintf(t.w, "%10s", "-")
			continue
		}
		fmt.Fprintf(t.w, "%10d", share)
	}
	fmt.Fprintf(t.w, "%7d of %d\n", total, rule.PermitLimit)
	if total != rule.PermitLimit {
		t.inexact++
	}
}

func (t *table) verdict() error {
	if t.inexact > 0 {
		return errors.New("some windows did not grant exactly the limit")
	}
	fmt.Fprintf(t.w, "\nevery window granted exactly %d calls, no matter which instances took them\n", rule.PermitLimit)
	return nil
}
