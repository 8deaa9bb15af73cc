// Reload runs a steady load through a pipeline of a configuration file, and changes the
// limit in the file meanwhile.
//
//	go run ./examples/reload
//
// It edits the file by itself: 20 calls a second, then 40, then a mistake, then 10. The
// rate of admitted calls follows at the next poll of the file, no call fails because of
// a reload, and the mistake changes nothing. In the end the program compares the number
// of admitted calls with what the limits allowed.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

const (
	callers = 8
	burst   = 5
	poll    = 500 * time.Millisecond
)

// configuration has a token every period, and a queue for all callers.
const configuration = `pipelines:
  service:
    strategies:
      - rate_limiter:
          token_bucket: {token_limit: 5, tokens_per_period: 1, replenishment_period: PERIOD, queue_limit: 100}
      - timeout: {timeout: 1s}
`

// steps are the versions of the file. A period of 0 is a mistake.
var steps = []struct {
	length, period time.Duration
}{
	{3 * time.Second, 50 * time.Millisecond},
	{3 * time.Second, 25 * time.Millisecond},
	{2 * time.Second, 0},
	{4 * time.Second, 100 * time.Millisecond},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "weir.yaml")
	write := func(period time.Duration) error {
		content := strings.Replace(configuration, "PERIOD", cmp.Or(period, time.Second).String(), 1)
		if period == 0 {
			content = strings.Replace(content, "tokens_per_period", "tokens_per_perod", 1)
		}
		return os.WriteFile(path, []byte(content), 0o600)
	}
	if err := write(steps[0].period); err != nil {
		return err
	}

	pipelines := registry.New(nil)
	defer pipelines.Close(context.Background())
	reloads := make(reports, len(steps))
	watcher, err := reload.Start(ctx, pipelines, path, &reload.Options{
		Interval: poll, Reporter: reloads,
		Logger: slog.New(slog.DiscardHandler), // the program prints what the reporter hears
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	service, err := pipelines.Get("service")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d callers that never pause; the file is polled every %v\n", callers, poll)
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var admitted, failed atomic.Int64
	var load sync.WaitGroup
	for range callers {
		load.Go(func() {
			for loading.Err() == nil {
				err := service.Execute(loading, func(context.Context) error { admitted.Add(1); return nil })
				if err != nil && loading.Err() == nil {
					failed.Add(1)
				}
			}
		})
	}

	// Each period allows a token, and one more because a period may end right at its beginning.
	allowed := int64(burst)
	since, period := (<-reloads).at, steps[0].period // Start has reported the first
	for i, step := range steps {
		if i > 0 {
			if err := write(step.period); err != nil {
				return err
			}
			var r report
			select {
			case r = <-reloads:
			case <-ctx.Done():
				return ctx.Err()
			}
			if fmt.Fprintf(out, "the file has changed: %s\n", cmp.Or(r.text, "it is in force")); r.text == "" {
				allowed += 1 + int64(r.at.Sub(since)/period)
				since, period = r.at, step.period
			}
		}
		before, began := admitted.Load(), time.Now()
		select {
		case <-time.After(step.length):
		case <-ctx.Done():
		}
		fmt.Fprintf(out, "%4.0f calls a second are admitted\n", float64(admitted.Load()-before)/time.Since(began).Seconds())
	}
	stopLoad()
	load.Wait()
	allowed += 1 + int64(time.Since(since)/period)
	fmt.Fprintf(out, "%d calls failed; %d were admitted, and the limits that were in force allow %d\n", failed.Load(), admitted.Load(), allowed)
	if failed.Load() > 0 || admitted.Load() > allowed {
		return errors.New("a reload has failed calls, or admitted too many")
	}
	return ctx.Err()
}

// reports get a report of each version of the file from the watcher.
type reports chan report

type report struct {
	at   time.Time
	text string // why the version is refused
}

func (r reports) ConfigReloaded(at time.Time, err error) {
	text := ""
	if err != nil {
		text = "refused, and nothing changes:\n" + err.Error()
	}
	r <- report{at, text}
}
