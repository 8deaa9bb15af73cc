package limiter

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

func BenchmarkZZFlood(b *testing.B) {
	for _, max := range []int{1000, 100_000, 1_000_000} {
		for _, busy := range []bool{false, true} {
			b.Run(fmt.Sprintf("max=%d/busy=%v", max, busy), func(b *testing.B) {
				o := TokenBucketOptions{TokenLimit: 1000, TokensPerPeriod: 1000, ReplenishmentPeriod: time.Microsecond}
				if busy {
					o = TokenBucketOptions{TokenLimit: 1000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
				}
				p := newPartitioned(b, TokenBucketFactory[string](o), PartitionedOptions{MaxPartitions: max, IdleTimeout: time.Hour})
				ctx := context.Background()
				for i := range max {
					_, _ = p.TryAcquire(ctx, fmt.Sprintf("user:%07d", i), 1)
				}
				keys := make([]string, 50_000)
				round := 0
				for b.Loop() {
					b.StopTimer()
					round++
					for i := range keys {
						keys[i] = fmt.Sprintf("flood:%d:%07d", round, i)
					}
					took := make([]time.Duration, len(keys))
					b.StartTimer()
					began := time.Now()
					for i, k := range keys {
						s := time.Now()
						l, err := p.TryAcquire(ctx, k, 1)
						took[i] = time.Since(s)
						if err != nil || l.Acquired() == busy {
							b.Fatal("unexpected")
						}
					}
					b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(len(keys)), "ns/key")
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)-10].Microseconds()), "µs-10th")
				}
			})
		}
	}
}
