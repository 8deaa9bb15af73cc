package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// BenchmarkSlidingRejected measures rejections of a sliding window, for callers who read when to come back, by the
// number of segments.
//
// use=last: the permit that was taken leaves the window with the last segment, all other segments are empty, and the window
// does not slide while the benchmark runs.
//
// use=all: the window slides by some segments between two calls, every other call takes a permit, and the others ask
// for all permits, which are rejected while a permit in the window is taken. rejected-% is the share of rejected calls;
// in a window of ten segments that slides so fast it is smaller.
func BenchmarkSlidingRejected(b *testing.B) {
	for _, segments := range []int{10, 100, 1_000} {
		name := fmt.Sprintf("segments=%d/use=", segments)
		b.Run(name+"last/by=weir-sliding-window", func(b *testing.B) {
			l := weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
				PermitLimit: 1, Window: time.Duration(segments) * time.Hour, SegmentsPerWindow: segments,
			}))
			alone(b, exhausted(b, l))
		})
		b.Run(name+"all/by=weir-sliding-window", func(b *testing.B) {
			most := max(2, segments/100)
			l := weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
				PermitLimit: most, Window: time.Duration(segments) * 50 * time.Nanosecond, SegmentsPerWindow: segments,
			}))
			var calls, rejections int
			alone(b, func() bool {
				n := 1
				if calls++; calls%2 == 0 {
					n = most
				}
				lease, err := l.TryAcquire(ctx, n)
				if !lease.Acquired() {
					rejections++
					after, ok := lease.RetryAfter()
					return err == nil && ok && after > 0
				}
				return err == nil
			})
			b.ReportMetric(100*float64(rejections)/float64(calls), "rejected-%")
		})
	}
}
