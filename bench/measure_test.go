package bench

import (
	"context"
	"runtime"
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
