package limiter

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// plenty are options under which nothing is ever rejected.
var (
	plentyTokens  = TokenBucketOptions{TokenLimit: math.MaxInt32, TokensPerPeriod: 1 << 20, ReplenishmentPeriod: time.Millisecond}
	plentyFixed   = FixedWindowOptions{PermitLimit: math.MaxInt32, Window: time.Second}
	plentySliding = SlidingWindowOptions{PermitLimit: math.MaxInt32, Window: time.Second, SegmentsPerWindow: 10}
)

func BenchmarkTryAcquire(b *testing.B) {
	for name, l := range map[string]Limiter{
		"TokenBucket":   weir.Must(NewTokenBucket(plentyTokens)),
		"FixedWindow":   weir.Must(NewFixedWindow(plentyFixed)),
		"SlidingWindow": weir.Must(NewSlidingWindow(plentySliding)),
		"Unlimited":     NewUnlimited(),
	} {
		b.Run(name+"/granted", func(b *testing.B) { tryAcquire(b, l) })
		b.Run(name+"/granted/parallel", func(b *testing.B) { tryAcquireParallel(b, l) })
	}
	for name, l := range map[string]Limiter{
		"TokenBucket":   weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})),
		"FixedWindow":   weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Hour})),
		"SlidingWindow": weir.Must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: 10})),
	} {
		_, _ = l.TryAcquire(context.Background(), 1)
		b.Run(name+"/rejected", func(b *testing.B) { tryAcquire(b, l) })
		b.Run(name+"/rejected/parallel", func(b *testing.B) { tryAcquireParallel(b, l) })
	}
}

func BenchmarkCharge(b *testing.B) {
	for name, l := range map[string]Charger{
		"TokenBucket":   weir.Must(NewTokenBucket(plentyTokens)),
		"FixedWindow":   weir.Must(NewFixedWindow(plentyFixed)),
		"SlidingWindow": weir.Must(NewSlidingWindow(plentySliding)),
		"Unlimited":     NewUnlimited(),
	} {
		for _, n := range []int{1, 0} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.Charge(context.Background(), n); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func tryAcquire(b *testing.B, l Limiter) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.TryAcquire(ctx, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func tryAcquireParallel(b *testing.B, l Limiter) {
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := l.TryAcquire(ctx, 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkConcurrency(b *testing.B) {
	ctx := context.Background()
	l := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 64}))
	tryAndRelease := func() bool {
		lease, err := l.TryAcquire(ctx, 1)
		lease.Release()
		return err == nil && lease.Acquired()
	}
	b.Run("TryAcquire and Release", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !tryAndRelease() {
				b.Fatal("not granted")
			}
		}
	})
	b.Run("TryAcquire and Release/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if !tryAndRelease() {
					b.Error("not granted")
					return
				}
			}
		})
	})
}

// BenchmarkConcurrencyHandover is 64 goroutines that hand one permit over. The
// processor time an operation is what to look at: wall time on several
// processors says less.
func BenchmarkConcurrencyHandover(b *testing.B) {
	ctx := context.Background()
	l := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1, QueueLimit: 64}))
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	before := processorTime(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			lease, err := l.Acquire(ctx, 1)
			if err != nil || !lease.Acquired() {
				b.Errorf("not granted: %v", err)
				return
			}
			lease.Release()
		}
	})
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkPartitioned(b *testing.B) {
	for _, n := range slices.Compact([]int{10_000, manyKeys()}) {
		b.Run(fmt.Sprintf("%d keys", n), func(b *testing.B) {
			keys := makeKeys(n)
			p := fill(b, keys)
			defer p.Close()
			b.Run("one goroutine", func(b *testing.B) {
				b.ReportAllocs()
				r := rand.New(rand.NewPCG(1, 2))
				for b.Loop() {
					acquireOne(b, p, keys[r.IntN(n)])
				}
			})
			b.Run("parallel", func(b *testing.B) {
				b.ReportAllocs()
				var seed atomic.Uint64
				b.RunParallel(func(pb *testing.PB) {
					r := rand.New(rand.NewPCG(1, seed.Add(1)))
					for pb.Next() {
						acquireOne(b, p, keys[r.IntN(n)])
					}
				})
			})
		})
	}
}

func acquireOne(b *testing.B, p *PartitionedLimiter[string, string], key string) {
	if _, err := p.TryAcquire(context.Background(), key, 1); err != nil {
		b.Error(err)
	}
}

// manyKeys is a million, or with -short few enough that the race detector copes.
func manyKeys() int {
	if testing.Short() {
		return 10_000
	}
	return 1_000_000
}

func makeKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%d", i)
	}
	return keys
}

func fill(tb testing.TB, keys []string) *PartitionedLimiter[string, string] {
	factory := TokenBucketFactory[string](TokenBucketOptions{TokenLimit: 1 << 30, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})
	p, err := NewPartitioned(func(key string) Partition[string] {
		return Partition[string]{Key: key, New: factory}
	}, &PartitionedOptions{IdleTimeout: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	for _, key := range keys {
		if _, err := p.TryAcquire(context.Background(), key, 1); err != nil {
			tb.Fatal(err)
		}
	}
	return p
}

// BenchmarkPartitionedMemory reports the bytes a key, with its string, of a
// million token buckets, and the time of the first sight of a key.
func BenchmarkPartitionedMemory(b *testing.B) {
	n := manyKeys()
	for b.Loop() {
		before := heap()
		started := time.Now()
		p := fillFresh(b, n)
		b.ReportMetric(float64(time.Since(started))/float64(n), "ns/first-sight")
		b.ReportMetric(float64(heap()-before)/float64(n), "B/key")
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// fillFresh makes the keys' strings as it goes, so that they count.
func fillFresh(tb testing.TB, n int) *PartitionedLimiter[string, string] {
	p := fill(tb, nil)
	for i := range n {
		if _, err := p.TryAcquire(context.Background(), fmt.Sprintf("user-%d", i), 1); err != nil {
			tb.Fatal(err)
		}
	}
	return p
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
