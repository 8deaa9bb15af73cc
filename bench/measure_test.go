package bench

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
)

// plenty is a limit that no benchmark reaches: enough for a permit a nanosecond, every second. It fits
// into an int of 32 bits.
const plenty = 1 << 30

// ctx is the context of all contenders: the cost of contexts is not compared.
var ctx = context.Background()

// A contender is one way to do the work of a benchmark.
type contender struct {
	name string
	// start makes new state and returns the function that one goroutine repeats. Its result reports whether the
	// call went as the benchmark expects: a contender that rejects where all others grant does other work.
	start func(b *testing.B) func() bool
}

// compare runs every contender with one goroutine and with two that share what start made.
func compare(b *testing.B, contenders []contender) {
	for _, c := range contenders {
		b.Run("by="+c.name+"/goroutines=1", func(b *testing.B) { alone(b, c.start(b)) })
		b.Run("by="+c.name+"/goroutines=2", func(b *testing.B) {
			op := c.start(b)
			together(b, func() func() bool { return op })
		})
	}
}

// alone repeats op in one goroutine.
func alone(b *testing.B, op func() bool) {
	b.ReportAllocs()
	for b.Loop() {
		if !op() {
			b.Fatal("unexpected answer")
		}
	}
}

// together shares b.N between two goroutines on two processors. Each has its own op, so that what a
// goroutine draws its keys from is not shared.
func together(b *testing.B, newOp func() func() bool) {
	b.ReportAllocs()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		op := newOp()
		for pb.Next() {
			if !op() {
				b.Error("unexpected answer")
				return
			}
		}
	})
}

// crowd is how many goroutines the benchmarks of issue 12 run on two processors. With eight, six of them are ready to run
// and do not: what they cost is the scheduler's, unless one is stopped while it holds a lock.
var crowd = []int{1, 2, 8}

// compareCrowded runs every contender with each number of goroutines, on two processors. The contenders of one number
// follow each other, so that they are near in time.
func compareCrowded(b *testing.B, contenders []contender) {
	for _, goroutines := range crowd {
		for _, c := range contenders {
			b.Run(fmt.Sprintf("by=%s/goroutines=%d", c.name, goroutines), func(b *testing.B) {
				op := c.start(b)
				share(b, 2, goroutines, func() func() bool { return op })
			})
		}
	}
}

// share has goroutines repeat what newOp returns, on so many processors, for as long as -benchtime says. Each goroutine has
// its own op. It counts by itself because testing collects garbage before each of the runs in which it finds out b.N, which
// takes most of the time where a million keys are kept.
func share(b *testing.B, processors, goroutines int, newOp func() func() bool) {
	const batch = 256
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	var ops atomic.Int64
	var took time.Duration
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		var wg sync.WaitGroup
		start := time.Now()
		for range goroutines {
			wg.Go(func() {
				op := newOp()
				for n := int64(batch); ; n += batch {
					for range batch {
						if !op() {
							b.Error("unexpected answer")
							return
						}
					}
					if time.Since(start) >= benchTime() {
						ops.Add(n)
						return
					}
				}
			})
		}
		wg.Wait()
		took += time.Since(start)
	}
	runtime.ReadMemStats(&after)
	n := ops.Load()
	b.ReportMetric(float64(took.Nanoseconds())/float64(n), "ns/op")
	b.ReportMetric(float64(int64(after.TotalAlloc-before.TotalAlloc)/n), "B/op") // what goroutines take is less than one
	b.ReportMetric(float64(int64(after.Mallocs-before.Mallocs)/n), "allocs/op")
}

// benchTime is what -benchtime says where that is a time.
var benchTime = sync.OnceValue(func() time.Duration {
	d, err := time.ParseDuration(flag.Lookup("test.benchtime").Value.String())
	if err != nil { // a number of times
		return time.Millisecond
	}
	return d
})

// granted and rejected turn a weir limiter into what a goroutine repeats.
func granted(l limiter.Limiter) func() bool {
	return func() bool {
		lease, err := l.TryAcquire(ctx, 1)
		return err == nil && lease.Acquired()
	}
}

func rejected(l limiter.Limiter) func() bool {
	return func() bool {
		lease, err := l.TryAcquire(ctx, 1)
		return err == nil && !lease.Acquired()
	}
}

// rejectedKnowing is rejected for a caller who reads when to come back.
func rejectedKnowing(l limiter.Limiter) func() bool {
	return func() bool {
		lease, err := l.TryAcquire(ctx, 1)
		after, ok := lease.RetryAfter()
		return err == nil && !lease.Acquired() && ok && after > 0
	}
}
