package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// envoyTimeout is the default of Envoy's filter: what is not answered by then passes, uncounted.
const envoyTimeout = 20 * time.Millisecond

// A load sends requests at fixed times, whether or not earlier ones have been answered, as the clients of a proxy do.
type load struct {
	perSecond, connections, keys int
	duration, timeout            time.Duration
	seed                         uint64
	sleepUntil                   func(time.Time) // if nil, that of the system; a bubble of testing/synctest has its own
}

// A result is one measurement.
type result struct {
	sent, failed, late int             // late: not answered within envoyTimeout
	latencies          []time.Duration // sorted
	starts             []time.Duration // sorted: how late the load itself began a request
	cpu                time.Duration   // of the server, for a request
	problem            string          // of the first failed request
}

// quantile returns the latency that a share q of the requests did not exceed: exactly, by all latencies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// run sends the requests to a server. A latency begins when the request was due, not when the load came to sending it, so
// that a server that stands still is charged for all requests that were due meanwhile.
func (l load) run(ctx context.Context, target string) (result, error) {
	var clients []ratelimitv3.RateLimitServiceClient
	for range l.connections {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return result{}, err
		}
		defer conn.Close() //nolint:errcheck // at the end
		client := ratelimitv3.NewRateLimitServiceClient(conn)
		if _, err := client.ShouldRateLimit(ctx, l.request(0)); err != nil {
			return result{}, fmt.Errorf("the first request: %w", err)
		}
		clients = append(clients, client)
	}
	requests := make([]*ratelimitv3.RateLimitRequest, l.keys)
	for i := range requests {
		requests[i] = l.request(i)
	}
	return l.send(ctx, func(ctx context.Context, i, key int) (*ratelimitv3.RateLimitResponse, error) {
		return clients[i%len(clients)].ShouldRateLimit(ctx, requests[key])
	})
}

// request returns the question about one client: its own limit, and one that all share.
func (l load) request(key int) *ratelimitv3.RateLimitRequest {
	entry := func(k, v string) *commonv3.RateLimitDescriptor {
		return &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: k, Value: v}}}
	}
	address := fmt.Sprintf("10.0.%d.%d", key/256, key%256)
	return &ratelimitv3.RateLimitRequest{
		Domain:      "bench",
		Descriptors: []*commonv3.RateLimitDescriptor{entry("remote_address", address), entry("path", "/api")},
	}
}

type asker func(ctx context.Context, i, key int) (*ratelimitv3.RateLimitResponse, error)

func (l load) send(ctx context.Context, ask asker) (result, error) {
	sleep := l.sleepUntil
	if sleep == nil {
		sleep = sleepUntil
	}
	n := int(l.duration.Seconds() * float64(l.perSecond))
	interval := time.Second / time.Duration(l.perSecond)
	latencies, starts, failed := make([]time.Duration, n), make([]time.Duration, n), make([]bool, n)
	random := rand.New(rand.NewPCG(l.seed, l.seed))
	var (
		wg      sync.WaitGroup
		problem atomic.Pointer[string]
	)
	began := time.Now()
	sent := 0
	for ; sent < n && ctx.Err() == nil; sent++ {
		due := began.Add(time.Duration(sent) * interval)
		sleep(due)
		key := random.IntN(l.keys)
		i := sent
		wg.Go(func() {
			starts[i] = time.Since(due)
			ctx, cancel := context.WithTimeout(ctx, l.timeout)
			defer cancel()
			response, err := ask(ctx, i, key)
			latencies[i] = time.Since(due)
			if err == nil {
				err = check(response)
			}
			if err != nil {
				failed[i] = true
				text := err.Error()
				problem.CompareAndSwap(nil, &text)
			}
		})
	}
	wg.Wait()
	r := result{sent: sent, latencies: latencies[:sent], starts: starts[:sent]}
	for i, d := range r.latencies {
		if failed[i] {
			r.failed++
		}
		if failed[i] || d > envoyTimeout {
			r.late++
		}
	}
	if text := problem.Load(); text != nil {
		r.problem = *text
	}
	slices.Sort(r.latencies)
	slices.Sort(r.starts)
	return r, ctx.Err()
}

// check returns an error if the answer is not that both limits have something left: nothing that is measured skips a limit.
func check(r *ratelimitv3.RateLimitResponse) error {
	if r.OverallCode != ratelimitv3.RateLimitResponse_OK || len(r.Statuses) != 2 {
		return fmt.Errorf("not the answer that was expected: %s", r)
	}
	for i, s := range r.Statuses {
		if s.Code != ratelimitv3.RateLimitResponse_OK || s.CurrentLimit == nil || s.LimitRemaining == 0 {
			return fmt.Errorf("status %d is not what was expected: %s", i, s)
		}
	}
	return nil
}

// String returns the result as a line.
func (r result) String() string {
	text := fmt.Sprintf("p50 %-8v p99 %-8v p99.9 %-8v max %-8v later than 20 ms: %s, failed: %d, the load began p99.9 %v late, %v of processor time a request",
		rounded(quantile(r.latencies, 0.5)), rounded(quantile(r.latencies, 0.99)), rounded(quantile(r.latencies, 0.999)), rounded(quantile(r.latencies, 1)),
		percent(r.late, r.sent), r.failed, rounded(quantile(r.starts, 0.999)), rounded(r.cpu))
	if r.problem != "" {
		text += "; the first problem: " + r.problem
	}
	return text
}

func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

func percent(n, of int) string {
	if of == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 3, 64) + " %"
}
