package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// BenchmarkKeyMemory measures what a new key costs: bytes that stay reachable, including its string, and time.
func BenchmarkKeyMemory(b *testing.B) {
	for _, n := range keyCounts {
		for _, s := range stores {
			b.Run(fmt.Sprintf("keys=%d/by=%s", n, s.name), func(b *testing.B) {
				skipLarge(b, n)
				var bytes uint64
				var took time.Duration
				rounds := 0
				for b.Loop() {
					rounds++
					before := heapInUse()
					st := s.open(b)
					start := time.Now()
					for i := range n {
						if !st.try(keyName(i)) {
							b.Fatal("rejected")
						}
					}
					took += time.Since(start)
					bytes += heapInUse() - before
					st.close()
				}
				b.ReportMetric(float64(bytes)/float64(rounds*n), "bytes/key")
				b.ReportMetric(float64(took.Nanoseconds())/float64(rounds*n), "ns/key")
				b.ReportMetric(0, "ns/op") // it would be the time of a whole round, garbage collections included
			})
		}
	}
}

// heapInUse returns how many bytes are reachable. The second collection frees what finalizers and pools have kept.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
