package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
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

// run sends the requests to a server.
func (l load) run(ctx context.Context, target string) (result, error) {
	messages := make([][]byte, l.keys)
	for i := range messages {
		message, err := proto.Marshal(request(i))
		if err != nil {
			return result{}, err
		}
		messages[i] = message
	}
	connections := make([]*connection, l.connections)
	for i := range connections {
		c, err := connect(ctx, target, l.timeout, messages[0])
		if err != nil {
			return result{}, fmt.Errorf("the first request: %w", err)
		}
		defer c.close()
		connections[i] = c
	}
	return l.send(ctx, func(i, key int, answered func([]byte, error)) {
		connections[i%len(connections)].send(messages[key], answered)
	})
}

// request returns the question about one client: its own limit, and one that all share.
func request(key int) *ratelimitv3.RateLimitRequest {
	entry := func(k, v string) *commonv3.RateLimitDescriptor {
		return &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: k, Value: v}}}
	}
	address := fmt.Sprintf("10.0.%d.%d", key/256, key%256)
	return &ratelimitv3.RateLimitRequest{
		Domain:      "bench",
		Descriptors: []*commonv3.RateLimitDescriptor{entry("remote_address", address), entry("path", "/api")},
	}
}

// An asker sends the request number i, about a key, and does not wait for the answer. It calls answered once, with the bytes of
// a message or an error, at once or later.
type asker func(i, key int, answered func(message []byte, err error))

// An outcome is what became of a request.
type outcome struct {
	start, latency time.Duration // after it was due
	message        []byte
	err            error
	answered       bool
}

var errNoAnswer = errors.New("no answer in time")

// send sends the requests by ask. A latency begins when the request was due, not when the load came to sending it, so that a
// server that stands still is charged for all requests that were due meanwhile. What arrives is looked at afterwards: it
// takes no processor time from the server.
func (l load) send(ctx context.Context, ask asker) (result, error) {
	sleep := l.sleepUntil
	if sleep == nil {
		sleep = sleepUntil
	}
	n := int(l.duration.Seconds() * float64(l.perSecond))
	interval := time.Second / time.Duration(l.perSecond)
	random := rand.New(rand.NewPCG(l.seed, l.seed))
	var (
		mu       sync.Mutex
		outcomes = make([]outcome, n)
		waiting  sync.WaitGroup
	)
	began := time.Now()
	sent := 0
	for ; sent < n && ctx.Err() == nil; sent++ {
		due := began.Add(time.Duration(sent) * interval)
		sleep(due)
		o := &outcomes[sent]
		o.start = time.Since(due)
		waiting.Add(1)
		ask(sent, random.IntN(l.keys), func(message []byte, err error) {
			latency := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			o.latency, o.message, o.err, o.answered = latency, message, err, true
			waiting.Done()
		})
	}
	waitAtMost(l.timeout, &waiting)
	ended := time.Now()
	mu.Lock()
	defer mu.Unlock()
	r := result{sent: sent}
	for i := range outcomes[:sent] {
		o := &outcomes[i]
		if !o.answered {
			o.latency, o.err = ended.Sub(began.Add(time.Duration(i)*interval)), errNoAnswer
		}
		r.add(o, l.timeout)
	}
	slices.Sort(r.latencies)
	slices.Sort(r.starts)
	return r, ctx.Err()
}

// waitAtMost waits until all requests are answered, or for d.
func waitAtMost(d time.Duration, waiting *sync.WaitGroup) {
	all := make(chan struct{})
	go func() {
		waiting.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(d):
	}
}

// add adds the outcome of a request.
func (r *result) add(o *outcome, timeout time.Duration) {
	err := o.err
	if err == nil && o.latency > timeout {
		err = errNoAnswer
	}
	if err == nil {
		err = check(o.message)
	}
	if err != nil {
		r.failed++
		if r.problem == "" {
			r.problem = err.Error()
		}
	}
	if err != nil || o.latency > envoyTimeout {
		r.late++
	}
	r.latencies = append(r.latencies, o.latency)
	r.starts = append(r.starts, o.start)
}

// check returns an error if the answer is not that both limits have something left: nothing that is measured skips a limit.
func check(message []byte) error {
	var r ratelimitv3.RateLimitResponse
	if err := proto.Unmarshal(message, &r); err != nil {
		return err
	}
	if r.OverallCode != ratelimitv3.RateLimitResponse_OK || len(r.Statuses) != 2 {
		return fmt.Errorf("not the answer that was expected: %s", &r)
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
