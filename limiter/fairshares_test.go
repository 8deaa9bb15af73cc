package limiter_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// A client of the tests of Kubernetes: threads that wait for width permits, hold them while they execute, and think.
type client struct {
	threads, calls int
	exec, think    time.Duration
	width          int
	laterThreads   int // how many of them begin when half of the time is over
}

// demand is how many permits a client would hold on average if no one else came.
func (c client) demand() float64 {
	return float64(c.threads*c.width) * float64(c.exec) / float64(c.exec+c.think)
}

// The rows of k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset/queueset_test.go that are about queues, with the margins
// that stand there: what each client holds on average is its fair share, which is all that it asks for, or an equal part of what the
// clients that ask for less leave. Where a margin is 0.05, it is 0.01 there: here, the four permits that are granted before a caller waits
// do not count. Other rows are about shuffling flows over queues, requests of changing width, and metrics.
func TestFair_SharesOfKubernetes(t *testing.T) {
	for _, test := range []struct {
		name    string
		limit   int
		clients []client
		took    time.Duration
		margin  float64
	}{
		{"Baseline", 1, []client{{threads: 1, calls: 21, exec: time.Second}}, 20 * time.Second, 0},
		{"Separations 1", 1, []client{{threads: 1, calls: 25, exec: time.Second, think: time.Second}}, 24 * time.Second, 0},
		{"Separations 2", 2, []client{{threads: 1, calls: 25, exec: time.Second, think: time.Second}}, 24 * time.Second, 0},
		{"Separations 4", 1, []client{
			{threads: 1, calls: 25, exec: time.Second, think: time.Second}, {threads: 1, calls: 25, exec: time.Second, think: time.Second},
		}, 24 * time.Second, 0},
		{"Separations 5", 2, []client{
			{threads: 1, calls: 25, exec: time.Second, think: time.Second}, {threads: 1, calls: 25, exec: time.Second, think: time.Second},
		}, 24 * time.Second, 0},
		{"UniformFlowsHandSize1", 4, []client{
			{threads: 8, calls: 20, exec: time.Second, think: time.Second - 1}, {threads: 8, calls: 20, exec: time.Second, think: time.Second - 1},
		}, 50 * time.Second, 0.05},
		{"DifferentFlowsExpectEqual", 4, []client{
			{threads: 8, calls: 20, exec: time.Second, think: time.Second}, {threads: 7, calls: 30, exec: time.Second, think: time.Second / 2},
		}, 40 * time.Second, 0.05},
		{"SeatSecondsRollover", 2000, []client{
			{threads: 8, calls: 20, exec: quarter, think: quarter, width: 500}, {threads: 7, calls: 30, exec: quarter, think: quarter / 2, width: 500},
		}, 40 * quarter, 0.05},
		{"DifferentFlowsExpectUnequal", 3, []client{
			{threads: 4, calls: 20, exec: time.Second, think: time.Second - 1}, {threads: 2, calls: 20, exec: time.Second, think: time.Second - 1},
		}, 20 * time.Second, 0.01},
		{"DifferentWidths", 6, []client{
			{threads: 13, calls: 10, exec: time.Second, think: time.Second - 1}, {threads: 7, calls: 10, exec: time.Second, think: time.Second - 1, width: 2},
		}, 20 * time.Second, 0.155},
		{"Windup", 3, []client{
			{threads: 2, calls: 40, exec: time.Second}, {threads: 2, calls: 40, exec: time.Second, laterThreads: 1},
		}, 40 * time.Second, 0.26},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{
					PermitLimit: test.limit, QueueLimit: 1_000_000, QueueOrder: limiter.Fair,
				}))
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				measured := func(c client) time.Time { // from when on
					if c.laterThreads > 0 || test.name == "Windup" {
						return start.Add(test.took / 2)
					}
					return start
				}
				held := make([]atomic.Int64, len(test.clients)) // permits times microseconds
				var want []float64
				for i, c := range test.clients {
					c.width = max(c.width, 1)
					want = append(want, c.demand())
					ctx := limiter.WithTenant(ctx, limiter.Tenant{Key: fmt.Sprint(i)})
					for j := range c.threads {
						go func() {
							if j < c.laterThreads {
								time.Sleep(test.took / 2)
							}
							for range c.calls {
								lease, err := l.Acquire(ctx, c.width)
								if err != nil {
									return
								}
								from := time.Now()
								time.Sleep(c.exec)
								lease.Release()
								if from.Before(measured(c)) {
									from = measured(c)
								}
								to := time.Now()
								if end := start.Add(test.took); to.After(end) {
									to = end
								}
								held[i].Add(max(to.Sub(from), 0).Microseconds() * int64(c.width))
								time.Sleep(c.think)
							}
						}()
					}
				}
				time.Sleep(test.took + test.clients[0].exec)
				cancel()
				time.Sleep(10 * test.clients[0].exec)
				for i, share := range fairShares(want, float64(test.limit)) {
					average := float64(held[i].Load()) * 1000 / float64(start.Add(test.took).Sub(measured(test.clients[i])))
					assert.InDelta(t, 1, average/share, test.margin+1e-6, "client %d: %v of %v", i, average, share)
				}
			})
		})
	}
}

const quarter = 91 * 24 * time.Hour

// fairShares returns what each gets if all get the same, but none more than it asks for.
func fairShares(demands []float64, capacity float64) []float64 {
	sorted := slices.Sorted(slices.Values(demands))
	var equal float64
	for i, d := range sorted {
		equal = capacity / float64(len(sorted)-i)
		if d > equal {
			break
		}
		capacity -= d
		equal = math.Inf(1)
	}
	shares := make([]float64, len(demands))
	for i, d := range demands {
		shares[i] = min(d, equal)
	}
	return shares
}
