package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir/limiter"
)

// refilled are stores whose buckets are refilled in every call, because more than a microsecond has passed since the last.
var refilled = []storeContender{
	{"weir-token-bucket", partitionedStore(limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: plenty, TokensPerPeriod: 1, ReplenishmentPeriod: time.Microsecond,
	}), noBound)},
	{"weir-fixed-window", partitionedStore(limiter.FactoryFor[string](limiter.FixedWindowOptions{
		PermitLimit: plenty, Window: time.Microsecond,
	}), noBound)},
	{"go-limiter", goLimiterStore(memorystore.Config{Tokens: plenty, Interval: time.Microsecond})},
	{"x-time-rate-map", rateMapStore(rate.Every(time.Microsecond))},
	{"floor-xsync-gcra", gcraMapStore(time.Microsecond)},
}

// BenchmarkKeyedRefilled takes permits of buckets by key that are refilled in every call. All keys have been seen before.
func BenchmarkKeyedRefilled(b *testing.B) {
	for _, n := range keyCounts {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			st := openWhenAsked(b, refilled, n)
			for _, by := range byDraw {
				d := newDraws(n, by.zipf)
				for _, goroutines := range goroutineCounts {
					for i, c := range refilled {
						b.Run(fmt.Sprintf("draw=%s/by=%s/goroutines=%d", by.name, c.name, goroutines), func(b *testing.B) {
							st := st[i]()
							share(b, 2, goroutines, func() func() bool { return d.each(st) })
						})
					}
				}
			}
		})
	}
}

// openWhenAsked returns a function for each contender that opens its store and fills in n keys at the first call. All
// stores stay open, so that contenders can take turns.
func openWhenAsked(b *testing.B, contenders []storeContender, n int) []func() store {
	skipLarge(b, n)
	opened := make([]func() store, len(contenders))
	for i, c := range contenders {
		opened[i] = sync.OnceValue(func() store {
			st := c.open(b)
			b.Cleanup(st.close)
			for k := range n {
				if !st.try(keyName(k)) {
					b.Error("rejected: ", keyName(k))
				}
			}
			return st
		})
	}
	return opened
}

// BenchmarkKeyedBounded compares stores with and without a bound on the number of keys, which is not reached.
func BenchmarkKeyedBounded(b *testing.B) {
	const n = 10_000
	bounded := noBound
	bounded.MaxPartitions = 1 << 20
	bucket := limiter.FactoryFor[string](bucketOptions)
	window := limiter.FactoryFor[string](windowOptions)
	contenders := []storeContender{
		{"weir-token-bucket-unbounded", partitionedStore(bucket, noBound)},
		{"weir-token-bucket-bounded", partitionedStore(bucket, bounded)},
		{"weir-fixed-window-unbounded", partitionedStore(window, noBound)},
		{"weir-fixed-window-bounded", partitionedStore(window, bounded)},
	}
	st := openWhenAsked(b, contenders, n)
	d := newDraws(n, false)
	for i, c := range contenders {
		for _, goroutines := range []int{1, 2} {
			b.Run(fmt.Sprintf("by=%s/goroutines=%d", c.name, goroutines), func(b *testing.B) {
				st := st[i]()
				share(b, 2, goroutines, func() func() bool { return d.each(st) })
			})
		}
	}
}
