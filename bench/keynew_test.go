package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
)

// BenchmarkKeyNew takes the first permit of new keys. The time includes garbage collections: on one processor the
// caller waits for the collector, on two most of its work is done on the other one.
func BenchmarkKeyNew(b *testing.B) {
	contenders := append([]storeContender{
		{"weir-token-bucket", partitionedStore(limiter.FactoryFor[string](bucketOptions), noBound)},
		{"weir-fixed-window", partitionedStore(limiter.FactoryFor[string](windowOptions), noBound)},
	}, stores[1:]...)
	for _, n := range keyCounts {
		for _, processors := range []int{1, 2} {
			for _, c := range contenders {
				b.Run(fmt.Sprintf("keys=%d/processors=%d/by=%s", n, processors, c.name), func(b *testing.B) {
					skipLarge(b, n)
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
					keys := keyNames(n)
					var took time.Duration
					rounds := 0
					for b.Loop() {
						rounds++
						st := c.open(b)
						runtime.GC()
						start := time.Now()
						for _, key := range keys {
							if !st.try(key) {
								b.Fatal("rejected: ", key)
							}
						}
						took += time.Since(start)
						st.close()
					}
					b.ReportMetric(float64(took.Nanoseconds())/float64(rounds*n), "ns/key")
					b.ReportMetric(0, "ns/op") // it would be the time of a whole round
				})
			}
		}
	}
}

func keyNames(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = keyName(i)
	}
	return keys
}
