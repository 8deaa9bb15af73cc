package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir/limiter"
)

// plenty is a limit that no benchmark reaches: enough for a permit a nanosecond, every second. It fits
// into an int of 32 bits.
const plenty = 1 << 30

// ctx is everybody's context: what a context costs is not what is compared.
var ctx = context.Background()

// A contender is one way to do the work of a benchmark.
type contender struct {
	name string
	// start makes everything anew and returns what one goroutine repeats. The result tells whether it went
	// as the benchmark expects: a contender that rejects where all others grant does other work than they.
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

// share shares b.N between goroutines on so many processors, a batch at a time. Each goroutine has its own op.
func share(b *testing.B, processors, goroutines int, newOp func() func() bool) {
	const batch = 256
	b.ReportAllocs()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func() {
		op := newOp()
		for {
			from := int(next.Add(batch)) - batch
			for range min(batch, b.N-from) {
				if !op() {
					b.Error("unexpected answer")
					return
				}
			}
			if from+batch >= b.N {
				return
			}
		}
	}
	b.ResetTimer()
	for range goroutines {
		wg.Go(work)
	}
	wg.Wait()
	b.StopTimer()
}

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
