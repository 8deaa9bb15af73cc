//go:build unix

package bench

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkHandover lets 64 goroutines on two processors hand one permit to each other. cpu-ns/op is the processor
// time, which includes the work of the scheduler. On an idle machine the elapsed time hides it.
func BenchmarkHandover(b *testing.B) {
	const goroutines, processors = 64, 2
	for _, c := range acquirers(1, goroutines) {
		b.Run("by="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			b.SetParallelism(goroutines / processors)
			op := c.start(b)
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
			used := processorTime(b) - before
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used so far, in user and in system mode.
func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
