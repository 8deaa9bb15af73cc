//go:build unix

package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// BenchmarkWaiters measures how much of a limiter's rate goroutines get that always wait for it. With short periods a
// timer is late by several of them, and the permits that came due meanwhile must not be lost. share-% is the permits
// granted in percent of the permits that came due; cpu-% is the processor time in percent of one processor.
func BenchmarkWaiters(b *testing.B) {
	for _, period := range []time.Duration{
		10 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 10 * time.Millisecond,
	} {
		for _, limit := range []int{1, 2, 10} {
			for _, waiters := range []int{8, 64} {
				for _, c := range waited(period, limit, waiters) {
					name := fmt.Sprintf("period=%v/limit=%d/waiters=%d/by=%s", period, limit, waiters, c.name)
					b.Run(name, func(b *testing.B) { wait(b, waiters, c) })
				}
			}
		}
	}
}

// A waiting is a contender whose op waits for a permit. One permit comes due each interval on average.
type waiting struct {
	name     string
	interval time.Duration
	start    func() func() bool
}

// waited returns a bucket that gets one token each period, windows of that length with limit permits, and
// x/time/rate at the rate of either.
func waited(period time.Duration, limit, waiters int) []waiting {
	each := max(period/time.Duration(limit), 1)
	return []waiting{
		{"weir-token-bucket", period, func() func() bool {
			return acquired(weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
				TokenLimit: limit, TokensPerPeriod: 1, ReplenishmentPeriod: period, QueueLimit: waiters,
			})))
		}},
		{"x-time-rate", period, func() func() bool { return waitedFor(rate.NewLimiter(rate.Every(period), limit)) }},
		{"weir-fixed-window", each, func() func() bool {
			return acquired(weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{
				PermitLimit: limit, Window: period, QueueLimit: waiters,
			})))
		}},
		{"weir-sliding-window", each, func() func() bool {
			return acquired(weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
				PermitLimit: limit, Window: period, SegmentsPerWindow: 10, QueueLimit: waiters,
			})))
		}},
		{"x-time-rate-of-windows", each, func() func() bool { return waitedFor(rate.NewLimiter(rate.Every(each), limit)) }},
	}
}

func acquired(l limiter.Limiter) func() bool {
	return func() bool {
		lease, err := l.Acquire(ctx, 1)
		return err == nil && lease.Acquired()
	}
}

func waitedFor(l *rate.Limiter) func() bool {
	return func() bool { return l.Wait(ctx) == nil }
}

func wait(b *testing.B, waiters int, c waiting) {
	const processors = 2
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	b.SetParallelism(waiters / processors)
	op := c.start()
	b.ResetTimer()
	before := processorTime(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !op() {
				b.Error("unexpected answer")
				return
			}
		}
	})
	elapsed := b.Elapsed()
	b.ReportMetric(100*float64(b.N)*float64(c.interval)/float64(elapsed), "share-%")
	b.ReportMetric(100*float64(processorTime(b)-before)/float64(elapsed), "cpu-%")
}
