// Gateway compares weir gateway with httputil.ReverseProxy, the way its users would: three processes, and wrk as the load from
// outside. Both proxies have the same transport to the same server, which answers with 1 KiB, and a pool of buffers.
//
//	go run ./bench/gateway -duration 10s -rounds 5
//
// In each round all variants run one after the other, so that other work of the machine slows all alike. The table at
// the end has the medians. The ratio of processor time is the median of the ratios of each round.
//
//	go run ./bench/gateway -beside -duration 3s -rounds 7
//
// That runs each variant and the first one at the same time, each with half of the connections. On a busy machine, a request costs
// more the fewer there are, and only this ratio of processor time can be repeated.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/tools/testserver"
)

func main() {
	role := flag.String("role", "", "for processes that this program starts: server or plain")
	listen := flag.String("listen", "", "for them: the address")
	to := flag.String("to", "", "for plain: the URL of the server")
	var o options
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "how long each measurement takes")
	flag.IntVar(&o.rounds, "rounds", 5, "how many measurements there are of each variant")
	flag.IntVar(&o.connections, "connections", 64, "how many connections the load has")
	flag.IntVar(&o.threads, "threads", 2, "how many threads the load has")
	flag.StringVar(&o.only, "only", "", "run only the first variant and those whose name contains this")
	flag.BoolVar(&o.beside, "beside", false, "run each variant and the first one at the same time")
	flag.Parse()
	var err error
	switch *role {
	case "server":
		err = serve(*listen, server())
	case "plain":
		err = serve(*listen, plain(*to))
	default:
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func serve(listen string, h http.Handler) error {
	// The timeouts are those of the gateway: setting a deadline for each request costs something.
	return (&http.Server{Addr: listen, Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}).ListenAndServe()
}

// server returns what stands behind the proxies.
func server() http.Handler {
	body := bytes.Repeat([]byte("weir\n"), 1024/5)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	})
}

// plain returns httputil.ReverseProxy with the transport that the gateway has.
func plain(to string) http.Handler {
	target, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		ErrorLog:   log.New(io.Discard, "", 0), // the load breaks off its last requests
		BufferPool: new(bufferPool),
		Transport: &http.Transport{
			DisableCompression: true, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute,
		},
	}
}

// A bufferPool is what the gateway has, too.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[32 << 10]byte); ok {
		return b[:]
	}
	return new([32 << 10]byte)[:]
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[32 << 10]byte)(b)) }

// options are the flags of the comparison.
type options struct {
	duration                     time.Duration
	rounds, connections, threads int
	only                         string
	beside                       bool
}

// A variant is a proxy to measure.
type variant struct {
	name    string
	command func(dir, listen, server string) (*exec.Cmd, error)
	process *testserver.Server
	results []result
}

// A result is one measurement.
type result struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the proxy, for a request
	ratio     float64       // of cpu, to that of the first variant in the same round
}

// gatewayFile is the configuration: the bucket is large enough to grant everything, because the load is one client.
const gatewayFile = `
gateway:
  admin: "off"
  access_log: {off: %t}
  keys: {client: {address: {}}}
  upstreams: {server: {addresses: [%q]}}
%s
`

// limited is the rest of the configuration with a limit and a timeout.
const limited = `
  policies: {per-client: {limiter: per-client, headers: draft-11}}
  routes: [{match: /, upstream: server, policies: [per-client]%s}]
limiters:
  per-client:
    partitioned: {key: client, each: {token_bucket: {token_limit: 1000000, tokens_per_period: 1000000, replenishment_period: 1s}}}
pipelines:
  server: {strategies: [{timeout: {timeout: 10s}}]}
`

// programs builds weir in a temporary folder, and returns the folder, weir, and this program.
func programs() (dir, weir, self string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", "", err
	}
	if dir, err = os.MkdirTemp("", "weir-gateway"); err != nil {
		return "", "", "", err
	}
	weir = filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-o", weir, "github.com/weir-go/weir/cmd/weir")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		_ = os.RemoveAll(dir)
		return "", "", "", err
	}
	return dir, weir, self, nil
}

func (o *options) run() error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return fmt.Errorf("%w: the load comes from wrk, which distributions have as a package", err)
	}
	dir, weir, self, err := programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, err := testserver.Start(ctx, func(listen string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, self, "-role", "server", "-listen", listen), nil
	})
	if err != nil {
		return err
	}
	defer server.Stop()
	gateway := func(logOff bool, rest string) func(dir, listen, server string) (*exec.Cmd, error) {
		return func(dir, listen, server string) (*exec.Cmd, error) {
			file := filepath.Join(dir, strings.ReplaceAll(listen, ":", "-")+".yaml")
			err := os.WriteFile(file, fmt.Appendf(nil, gatewayFile, logOff, server, rest), 0o600)
			return exec.CommandContext(ctx, weir, "gateway", "-config", file, "-listen", listen), err
		}
	}
	variants := []*variant{
		{name: "httputil.ReverseProxy", command: func(_, listen, server string) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, self, "-role", "plain", "-listen", listen, "-to", server), nil
		}},
		{name: "weir gateway, passed through", command: gateway(true, "  routes: [{match: /, upstream: server}]")},
		{name: "weir gateway, limit with fields", command: gateway(true, fmt.Sprintf(limited, ""))},
		{name: "weir gateway, also a timeout", command: gateway(true, fmt.Sprintf(limited, ", pipeline: server"))},
		{name: "weir gateway, also the access log", command: gateway(false, fmt.Sprintf(limited, ", pipeline: server"))},
	}
	first := variants[0]
	variants = slices.DeleteFunc(variants, func(v *variant) bool { return v != first && !strings.Contains(v.name, o.only) })
	for _, v := range variants {
		if v.process, err = testserver.Start(ctx, func(listen string) (*exec.Cmd, error) { return v.command(dir, listen, "http://"+server.Addr()) }); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		defer v.process.Stop()
	}
	for round := range o.rounds + 1 { // the first one warms up
		var floor result
		for _, v := range variants {
			var r result
			var err error
			switch {
			case !o.beside:
				r, err = o.measure(ctx, v.process, o.connections, round == 0)
			case v != first:
				floor, r, err = o.measureBoth(ctx, first.process, v.process, round == 0)
			default:
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			if v == first {
				floor = r
			}
			if round > 0 {
				r.ratio = float64(r.cpu) / float64(floor.cpu)
				v.results = append(v.results, r)
				fmt.Printf("round %d  %-34s %8.0f requests/s  p50 %v  p99 %v  %v of processor time a request, %.2f\n", round, v.name, r.perSecond, r.p50, r.p99, r.cpu, r.ratio)
			}
		}
		if round > 0 && o.beside { // beside the last variant
			floor.ratio = 1
			first.results = append(first.results, floor)
		}
	}
	report(variants, o)
	return nil
}

var (
	perSecond = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	requests  = regexp.MustCompile(`(\d+) requests in `)
	latency   = regexp.MustCompile(`\s(50|99)%\s+([0-9.]+[a-z]+)`)
	wrong     = regexp.MustCompile(`(?m)^\s*(Non-2xx|Socket errors).*`)
)

// measureBoth runs half of the load on each of two processes at the same time.
func (o *options) measureBoth(ctx context.Context, first, second *testserver.Server, warmUp bool) (a, b result, err error) {
	var both sync.WaitGroup
	var errA, errB error
	both.Go(func() { a, errA = o.measure(ctx, first, o.connections/2, warmUp) })
	both.Go(func() { b, errB = o.measure(ctx, second, o.connections/2, warmUp) })
	both.Wait()
	return a, b, cmp.Or(errA, errB)
}

// measure runs the load once.
func (o *options) measure(ctx context.Context, p *testserver.Server, connections int, warmUp bool) (r result, err error) {
	duration := o.duration
	if warmUp {
		duration = min(duration, 2*time.Second)
	}
	before := p.CPU()
	out, err := exec.CommandContext(ctx, "wrk", "--latency", "-t", strconv.Itoa(o.threads), "-c", strconv.Itoa(connections),
		"-d", fmt.Sprintf("%ds", int(duration.Seconds())), "http://"+p.Addr()).CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	if problem := wrong.Find(out); problem != nil && !warmUp {
		return r, fmt.Errorf("wrk: %s", bytes.TrimSpace(problem))
	}
	found := perSecond.FindSubmatch(out)
	if found == nil {
		return r, fmt.Errorf("wrk: not understood:\n%s", out)
	}
	r.perSecond, _ = strconv.ParseFloat(string(found[1]), 64)
	if count, _ := strconv.Atoi(string(requests.FindSubmatch(out)[1])); count > 0 {
		r.cpu = (p.CPU() - before) / time.Duration(count)
	}
	for _, l := range latency.FindAllSubmatch(out, -1) {
		d, _ := time.ParseDuration(string(l[2]))
		if string(l[1]) == "50" {
			r.p50 = d
		} else {
			r.p99 = d
		}
	}
	return r, nil
}

// report prints the medians.
func report(variants []*variant, o *options) {
	fmt.Printf("\n%s, %s/%s, %d processors; %d connections, %d rounds of %v; medians\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.connections, o.rounds, o.duration)
	fmt.Println("| | requests/s | p50 | p99 | processor time a request | processor time, of the first |")
	fmt.Println("|---|--:|--:|--:|--:|--:|")
	for _, v := range variants {
		fmt.Printf("| %s | %.0f | %v | %v | %v | %.2f |\n", v.name, median(v.results, func(r result) float64 { return r.perSecond }),
			time.Duration(median(v.results, func(r result) float64 { return float64(r.p50) })),
			time.Duration(median(v.results, func(r result) float64 { return float64(r.p99) })),
			time.Duration(median(v.results, func(r result) float64 { return float64(r.cpu) })).Round(100*time.Nanosecond),
			median(v.results, func(r result) float64 { return r.ratio }))
	}
}

func median(results []result, of func(result) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
