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

// plenty is a limit that no benchmark reaches: more than a permit each nanosecond for a second. It fits into an int of 32
// bits.
const plenty = 1 << 30

// ctx is the context of all contenders: the cost of contexts is not compared.
var ctx = context.Background()

// A contender is one way to do the work of a benchmark.
type contender struct {
	name string
	// start makes new state and returns the function that one goroutine repeats. Its result reports whether the answer
	// is the expected one: a contender that rejects where all others grant does other work.
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

// together shares b.N between two goroutines on two processors. Each has its own op, so that they do not share the
// source of their keys.
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

// goroutineCounts are the numbers of goroutines that benchmarks of promises run on two processors. With eight, six are
// ready but do not run: they only cost the scheduler time, unless one is stopped while it holds a lock.
var goroutineCounts = []int{1, 2, 4, 8}

// compareByGoroutines runs every contender with each of the goroutineCounts, on two processors. The contenders of one
// number follow each other, so that they are near in time.
func compareByGoroutines(b *testing.B, contenders []contender) {
	for _, goroutines := range goroutineCounts {
		for _, c := range contenders {
			b.Run(fmt.Sprintf("by=%s/goroutines=%d", c.name, goroutines), func(b *testing.B) {
				op := c.start(b)
				share(b, 2, goroutines, func() func() bool { return op })
			})
		}
	}
}

// share lets goroutines on so many processors repeat ops for the time in -benchtime. Each goroutine gets its own op
// from newOp. share does not use b.N, because package testing collects garbage before each run with which it searches
// for b.N, which takes most of the time if a million keys are kept.
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
	b.ReportMetric(float64(int64(after.TotalAlloc-before.TotalAlloc)/n), "B/op") // less than one for the goroutines
	b.ReportMetric(float64(int64(after.Mallocs-before.Mallocs)/n), "allocs/op")
}

// benchTime returns -benchtime, or a millisecond if -benchtime is a number of iterations.
var benchTime = sync.OnceValue(func() time.Duration {
	d, err := time.ParseDuration(flag.Lookup("test.benchtime").Value.String())
	if err != nil {
		return time.Millisecond
	}
	return d
})

// granted returns an op that expects a permit of l.
func granted(l limiter.Limiter) func() bool {
	return func() bool {
		lease, err := l.TryAcquire(ctx, 1)
		return err == nil && lease.Acquired()
	}
}

// rejected returns an op that expects a rejection by l.
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
