// Rls measures how long weir rls and the server of envoyproxy/ratelimit take to answer, asked from outside: a process for the
// server, and this one as its client, which sends requests at fixed times and takes the latency of each from the time it was
// due.
//
//	go run ./bench/rls -duration 30s -rounds 3
//	go run ./bench/rls -target 127.0.0.1:8081
//
// In each round all variants run one after the other, so that other work of the machine slows all alike. The table at
// the end has the medians. The exit code is 1 if weir is slower than promised: p99.9 under 5 ms in process, and under 15 ms
// on Redis.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/weir-go/weir/tools/testserver"
)

func main() {
	var o options
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "how long each measurement takes")
	flag.IntVar(&o.rounds, "rounds", 3, "how many measurements there are of each variant")
	flag.IntVar(&o.perSecond, "rate", 5000, "requests a second")
	flag.IntVar(&o.connections, "connections", 4, "how many connections the load has, as a proxy has one for each of its threads")
	flag.IntVar(&o.keys, "keys", 10_000, "how many clients there are, each with its own limit")
	flag.DurationVar(&o.timeout, "timeout", time.Second, "after how long a request counts as failed")
	flag.StringVar(&o.only, "only", "", "run only variants whose name matches this regular expression")
	flag.StringVar(&o.target, "target", "", "measure the server at this address instead, which must have the rules of variants.go")
	serve := flag.String("serve", "", "be the server at this address that gives every request the same answer")
	flag.Parse()
	o.seed = 1
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	kept := true
	var err error
	switch {
	case *serve != "":
		err = serveAlone(ctx, *serve)
	case o.target != "":
		var r result
		r, err = o.load.run(ctx, o.target)
		fmt.Println(r)
	default:
		kept, err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rls:", err)
		os.Exit(1)
	}
	if !kept {
		os.Exit(1)
	}
}

// options are the flags of the comparison.
type options struct {
	load
	rounds       int
	only, target string
}

// run measures all variants, and reports whether the promises were kept.
func (o *options) run(ctx context.Context) (kept bool, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	dir, err := os.MkdirTemp("", "weir-rls")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	redis, err := testserver.StartRedis(ctx)
	if err != nil {
		return false, err
	}
	defer redis.Stop()
	postgres, err := testserver.StartPostgres(ctx)
	if err != nil {
		return false, err
	}
	defer postgres.Stop()
	p, err := build(ctx, dir)
	if err != nil {
		return false, err
	}
	variants := slices.DeleteFunc(p.variants(redis, postgres), func(v *variant) bool { return !only.MatchString(v.name) })
	for round := range o.rounds + 1 { // the first one warms up
		for _, v := range variants {
			r, err := o.measure(ctx, v, filepath.Join(dir, fmt.Sprintf("%d-%s", round, v.folder)), round == 0)
			if err != nil {
				return false, fmt.Errorf("%s: %w", v.name, err)
			}
			if round > 0 {
				v.results = append(v.results, r)
				fmt.Printf("round %d  %-42s %v\n", round, v.name, r)
			}
		}
	}
	return o.report(variants), nil
}

// measure starts the server of a variant, runs the load once and stops the server, so that the others have the machine.
func (o *options) measure(ctx context.Context, v *variant, dir string, warmUp bool) (result, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return result{}, err
	}
	p, err := testserver.Start(ctx, func(address string) (*exec.Cmd, error) { return v.command(ctx, dir, address) })
	if err != nil {
		return result{}, err
	}
	defer p.Stop()
	l := o.load
	if l.duration = 2 * time.Second; !warmUp {
		// Connections, the process and its keys are warm before the measurement.
		if _, err := l.run(ctx, p.Addr()); err != nil {
			return result{}, fmt.Errorf("%w\n%s", err, p.Output())
		}
		l.duration = o.duration
	}
	before := p.CPU()
	r, err := l.run(ctx, p.Addr())
	if r.sent > 0 {
		r.cpu = (p.CPU() - before) / time.Duration(r.sent)
	}
	return r, err
}

// report prints the medians, and reports whether the promises were kept.
func (o *options) report(variants []*variant) bool {
	fmt.Printf("\n%s, %s/%s, %d processors; %d requests/s, %d connections, %d keys, %d rounds of %v; medians\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.perSecond, o.connections, o.keys, o.rounds, o.duration)
	fmt.Println("| | p50 | p99 | p99.9 | max | later than 20 ms | processor time a request | promised p99.9 |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	kept := true
	for _, v := range variants {
		at := func(q float64) time.Duration {
			return rounded(median(v.results, func(r result) time.Duration { return quantile(r.latencies, q) }))
		}
		late, sent := 0, 0
		for _, r := range v.results {
			late, sent = late+r.late, sent+r.sent
		}
		promise := ""
		if v.promised > 0 {
			promise = v.promised.String()
			if at(0.999) > v.promised {
				promise, kept = promise+", not kept", false
			}
		}
		fmt.Printf("| %s | %v | %v | %v | %v | %s | %v | %s |\n", v.name, at(0.5), at(0.99), at(0.999), at(1), percent(late, sent),
			rounded(median(v.results, func(r result) time.Duration { return r.cpu })), promise)
	}
	return kept
}

func median(results []result, of func(result) time.Duration) time.Duration {
	var values []time.Duration
	for _, r := range results {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return quantile(values, 0.5)
}
