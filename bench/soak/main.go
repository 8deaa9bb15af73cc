// Soak runs the parts of weir together for a given time while faults are injected at random, and checks what weir promises.
//
//	go run -race ./bench/soak -for 1h
//
// The parts: pipelines of a configuration file that is always being replaced, an HTTP server with clients, and shared limiters on
// the backend in memory. Limiters alone have their tests of stress in package limiter. The faults: the backend fails, stalls and
// forgets, and its clock steps in both directions; files are cut, garbled and removed, clients abort, contexts end, limits change,
// and functions of the program panic and call runtime.Goexit.
//
// The checks: no limiter grants more than its limits allow over any window, no more permits are held than there are,
// every permit is back when nothing runs, tables of keys stay within their bounds, and neither goroutines nor memory
// grow. A broken promise is printed when it is seen, and the exit code is then 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	length := flag.Duration("for", time.Minute, "how long to run")
	only := flag.String("only", "", "the parts to run, with commas between; all unless set")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *length, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A part is one subject of the soak. It runs until ctx ends and then waits for what it has started.
type part struct {
	name string
	run  func(ctx context.Context, s *soak) error
}

var parts = []part{
	{"pipelines", pipelines},
	{"http", overHTTP},
	{"store", shared},
}

func run(ctx context.Context, w io.Writer, length time.Duration, only string) error {
	// Thousands of panics of hooks are recovered and logged. Count them instead.
	logged := &countingHandler{}
	slog.SetDefault(slog.New(logged))

	s := newSoak(w)
	s.print("soak for %v, %s, %d processors", length, runtime.Version(), runtime.GOMAXPROCS(0))
	before := usage()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		wg.Go(func() {
			if err := p.run(ctx, s); err != nil {
				s.violation("%s: %v", p.name, err)
			}
		})
	}
	wg.Go(func() { s.watch(ctx) })
	wg.Wait()
	s.checkUsage(before)
	s.print("%d recovered panics were logged", logged.recovered.Load())
	s.figures()
	if n := s.violations(); n > 0 {
		return fmt.Errorf("%d promises were broken", n)
	}
	s.print("every promise held")
	return nil
}

// watch prints the counts each minute, and checks that the memory does not grow.
func (s *soak) watch(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	var first uint64 // after the first minute, when pools and tables have filled
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		u := usage()
		s.print("%d goroutines, %d MiB", u.goroutines, u.heap>>20)
		s.figures()
		if first == 0 {
			first = u.heap
		} else if u.heap > 3*first+64<<20 {
			s.violation("memory: %d MiB are in use, after the first minute it was %d", u.heap>>20, first>>20)
		}
	}
}

type resources struct {
	goroutines int
	heap       uint64
}

// usage returns what is in use after a garbage collection.
func usage() resources {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resources{runtime.NumGoroutine(), m.HeapAlloc}
}

// checkUsage checks that goroutines have ended and memory is free. Some goroutines end a moment after Close.
func (s *soak) checkUsage(before resources) {
	end := time.Now().Add(20 * time.Second)
	for runtime.NumGoroutine() > before.goroutines && time.Now().Before(end) {
		time.Sleep(50 * time.Millisecond) // nothing tells when a goroutine has ended
	}
	now := usage()
	if now.goroutines > before.goroutines {
		stacks := make([]byte, 1<<20)
		s.violation("%d goroutines are left of %d:\n%s", now.goroutines, before.goroutines, stacks[:runtime.Stack(stacks, true)])
	}
	if now.heap > before.heap+64<<20 {
		s.violation("%d MiB are in use at the end, %d were at the beginning", now.heap>>20, before.heap>>20)
	}
}
