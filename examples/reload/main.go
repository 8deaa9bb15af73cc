// Reload runs a steady load through a pipeline of a configuration file, and changes the
// limit in the file meanwhile.
//
//	go run ./examples/reload
//	go run ./examples/reload -keep    # leaves the editing to you
//
// It edits the file by itself: 20 calls a second, then 40, then a mistake, then 10. The
// rate of admitted calls follows at the next poll of the file, no call fails because of
// a reload, and the mistake changes nothing. In the end the program compares the number
// of admitted calls with what the limits allowed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

const (
	callers = 8
	burst   = 5
	poll    = 500 * time.Millisecond
)

func main() {
	keep := flag.Bool("keep", false, "keep running, for you to edit the file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *keep); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// configuration returns the file: a token every period, and a queue for all callers.
func configuration(period time.Duration) string {
	return fmt.Sprintf(`pipelines:
  service:
    strategies:
      - rate_limiter:
          token_bucket:
            token_limit: %d
            tokens_per_period: 1
            replenishment_period: %v
            queue_limit: 100
      - timeout: {timeout: 1s}
`, burst, period)
}

const mistake = `pipelines:
  service:
    strategies:
      - rate_limiter:
          token_bucket: {token_limit: 5, tokens_per_perod: 1, replenishment_period: 10}
`

func run(ctx context.Context, out io.Writer, keep bool) error {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := &editor{path: filepath.Join(dir, "weir.yaml")}
	if err := file.write(configuration(50 * time.Millisecond)); err != nil {
		return err
	}

	pipelines := registry.New(nil)
	defer pipelines.Close(context.Background())
	j := &journal{out: out, began: time.Now()}
	watcher, err := reload.Start(ctx, pipelines, file.path, &reload.Options{
		Interval: poll,
		Logger:   slog.New(slog.DiscardHandler), // the journal reports reloads
		Reporter: j,
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	service, err := pipelines.Get("service")
	if err != nil {
		return err
	}

	j.say("%d callers that never pause; the file is polled every %v", callers, poll)
	if keep {
		j.say("edit %s, and leave with Ctrl-C", file.path)
	}
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var load sync.WaitGroup
	for range callers {
		load.Go(func() { call(loading, service, j) })
	}
	load.Go(func() { j.every(loading, time.Second) })

	if keep {
		<-ctx.Done()
	} else {
		file.edit(ctx, j)
	}
	stopLoad()
	load.Wait()
	return j.conclude(!keep)
}

// call calls the service again and again.
func call(ctx context.Context, service *pipeline.Pipeline, j *journal) {
	for ctx.Err() == nil {
		err := service.Execute(ctx, func(context.Context) error {
			j.admitted()
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			j.failed(err)
		}
	}
}

// An editor changes the file as a person with a text editor does.
type editor struct{ path string }

func (e *editor) write(content string) error {
	return os.WriteFile(e.path, []byte(content), 0o600)
}

func (e *editor) edit(ctx context.Context, j *journal) {
	for _, step := range []struct {
		after   time.Duration
		what    string
		content string
		period  time.Duration
	}{
		{3 * time.Second, "40 a second", configuration(25 * time.Millisecond), 25 * time.Millisecond},
		{3 * time.Second, "a mistake", mistake, 0},
		{2 * time.Second, "10 a second", configuration(100 * time.Millisecond), 100 * time.Millisecond},
		{4 * time.Second, "", "", 0},
	} {
		select {
		case <-ctx.Done():
			return
		case <-time.After(step.after):
		}
		if step.what == "" {
			return
		}
		j.say("the file says: %s", step.what)
		j.edited(step.period)
		if err := e.write(step.content); err != nil {
			j.failed(err)
		}
	}
}
