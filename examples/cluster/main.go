// Cluster runs three instances of a small service, each a process of its own, that share one
// limiter: 60 calls every two seconds, for all of them together. It floods them, prints the
// share of each and the exact total of every window, kills one with SIGKILL, and goes on with
// the others.
//
//	go run ./examples/cluster
//
// The limiter's state is in Redis or PostgreSQL: in the server that WEIR_REDIS_URL or
// WEIR_POSTGRES_URL names, or else in one that is started from PATH and stopped at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/tools/testserver"
)

const (
	instances = 3
	windows   = 4  // in the middle, one instance is killed
	calls     = 60 // to each instance, in each window: more than there are permits for
	callers   = 4  // of each instance
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 4 && os.Args[1] == "instance" {
		err = serve(ctx, os.Args[2], os.Args[3])
	} else {
		err = run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	url, stop, err := findStore(ctx)
	if err != nil {
		return err
	}
	defer stop()
	shared, closeShared, err := newLimiter(ctx, url)
	if err != nil {
		return err
	}
	defer closeShared()
	defer http.DefaultClient.CloseIdleConnections()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var fleet []*testserver.Server
	for range instances {
		i, err := testserver.Start(ctx, func(address string) (*exec.Cmd, error) {
			return exec.Command(self, "instance", url, address), nil
		})
		if err != nil {
			return err
		}
		defer i.Stop()
		fleet = append(fleet, i)
	}
	fmt.Fprintf(out, "%d instances share %d calls every %v, through %s\n\n", instances, rule.PermitLimit, rule.Window, scheme(url))
	fmt.Fprintln(out, "window  number 1  number 2  number 3     total")
	for n := 1; n <= windows; {
		if err := awaitWindow(ctx, shared); err != nil {
			return err
		}
		began := time.Now()
		total, line := 0, fmt.Sprintf("%6d", n)
		for _, admitted := range flood(ctx, fleet) {
			total += admitted
			line += fmt.Sprintf("%10d", admitted)
		}
		if time.Since(began) > rule.Window*9/10 {
			continue // the machine is busy, and permits of two windows were taken
		}
		fmt.Fprintf(out, "%s%7d of %d\n", line, total, rule.PermitLimit)
		if total != rule.PermitLimit {
			return errors.New("a window did not grant exactly the limit")
		}
		if n++; n == windows/2+1 {
			fmt.Fprintln(out, "        kill -9 of number 2")
			fleet[1].Kill()
		}
	}
	fmt.Fprintf(out, "\nevery window granted exactly %d calls, no matter which instances took them\n", rule.PermitLimit)
	return nil
}

// awaitWindow takes what is left of a window, and waits until the next one begins.
func awaitWindow(ctx context.Context, shared limiter.Limiter) error {
	for {
		lease, err := shared.TryAcquire(ctx, 1)
		if err != nil {
			return err
		}
		if wait, rejected := lease.RetryAfter(); rejected {
			time.Sleep(wait)
			return ctx.Err()
		}
	}
}

// flood makes that many calls to each instance, from several callers for each at the
// same time, and returns how many calls each has admitted.
func flood(ctx context.Context, fleet []*testserver.Server) []int {
	admitted := make([]int, len(fleet))
	var all sync.WaitGroup
	for n, i := range fleet {
		all.Go(func() {
			var count atomic.Int64
			var callersOf sync.WaitGroup
			for range callers {
				callersOf.Go(func() {
					for range calls / callers {
						if call(ctx, i.URL) {
							count.Add(1)
						}
					}
				})
			}
			callersOf.Wait()
			admitted[n] = int(count.Load())
		})
	}
	all.Wait()
	return admitted
}

// call reports whether the instance has admitted a call. One that was killed admits none.
func call(ctx context.Context, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}
