package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
)

// refillsIn is the time after which the limiters of BenchmarkKeyBytes are full again.
const refillsIn = 50 * time.Millisecond

// A life is what happens to each key before its bytes are counted.
type life struct {
	name string
	keys int
	live func(b *testing.B, p *partitions, keys []string)
}

var lives = []life{
	{"fresh", 1_000_000, func(b *testing.B, p *partitions, keys []string) {
		for _, key := range keys {
			p.mustGet(b, key, true)
		}
	}},
	{"rejected", 1_000_000, func(b *testing.B, p *partitions, keys []string) {
		for _, key := range keys {
			for p.get(b, key) { // more than once if this goroutine was stopped for longer than refillsIn
			}
		}
	}},
	{"reconfigured", 1_000_000, func(b *testing.B, p *partitions, keys []string) {
		for _, key := range keys {
			p.mustGet(b, key, true)
		}
		for _, l := range p.All() {
			check(b, p.reconfigure(l))
		}
	}},
	{"queued", 10_000, func(b *testing.B, p *partitions, keys []string) {
		const together = 1000 // goroutines
		var wg sync.WaitGroup
		for len(keys) > 0 {
			now := keys[:min(together, len(keys))]
			keys = keys[len(now):]
			for _, key := range now {
				for p.get(b, key) {
				}
				wg.Go(func() {
					if lease, err := p.Acquire(ctx, key, 1); err != nil || !lease.Acquired() {
						b.Errorf("%v: %v %v", key, lease, err)
					}
				})
			}
			wg.Wait()
		}
	}},
}

// partitions are limiters that hold one permit, by key.
type partitions struct {
	*limiter.PartitionedLimiter[string, string]
	reconfigure func(l limiter.Limiter) error
}

func (p *partitions) get(b *testing.B, key string) bool {
	lease, err := p.TryAcquire(ctx, key, 1)
	check(b, err)
	return lease.Acquired()
}

func (p *partitions) mustGet(b *testing.B, key string, want bool) {
	if p.get(b, key) != want {
		b.Fatalf("%v: %v", key, !want)
	}
}

var bytesOf = []struct {
	name string
	open func(b *testing.B) *partitions
}{
	{"weir-token-bucket", func(b *testing.B) *partitions {
		o := limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: refillsIn, QueueLimit: 1}
		p := newPartitioned(b, limiter.FactoryFor[string](o), noBound)
		o.TokenLimit = 2
		return &partitions{p, func(l limiter.Limiter) error { return l.(*limiter.TokenBucket).Reconfigure(o) }}
	}},
	{"weir-fixed-window", func(b *testing.B) *partitions {
		o := limiter.FixedWindowOptions{PermitLimit: 1, Window: refillsIn, QueueLimit: 1}
		p := newPartitioned(b, limiter.FactoryFor[string](o), noBound)
		o.PermitLimit = 2
		return &partitions{p, func(l limiter.Limiter) error { return l.(*limiter.FixedWindow).Reconfigure(o) }}
	}},
}

// BenchmarkKeyBytes counts the bytes of a key whose limiter is full again, without the text of the key, after each of the
// lives. bytes/key-touched is the same after one more call for each key, for limiters that notice only then that they are
// full.
func BenchmarkKeyBytes(b *testing.B) {
	for _, l := range lives {
		n := l.keys
		if testing.Short() {
			n = min(n, 1000)
		}
		keys := keyNames(n)
		for _, c := range bytesOf {
			b.Run(fmt.Sprintf("keys=%d/life=%s/by=%s", n, l.name, c.name), func(b *testing.B) {
				warm := c.open(b)
				l.live(b, warm, keys[:min(n, 1000)]) // what is allocated once, such as goroutines, is not counted
				check(b, warm.Close())
				var full, touched uint64
				rounds := 0
				for b.Loop() {
					rounds++
					before := heapInUse()
					p := c.open(b)
					l.live(b, p, keys)
					time.Sleep(2 * refillsIn)
					full += heapInUse() - before
					for _, key := range keys {
						p.mustGet(b, key, true)
					}
					time.Sleep(2 * refillsIn)
					touched += heapInUse() - before
					check(b, p.Close())
				}
				b.ReportMetric(float64(full)/float64(rounds*n), "bytes/key")
				b.ReportMetric(float64(touched)/float64(rounds*n), "bytes/key-touched")
				b.ReportMetric(0, "ns/op") // it would be the time of a whole round
			})
		}
	}
}
