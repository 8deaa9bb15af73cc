package limiter

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

func BenchmarkPartitionedRejected(b *testing.B) {
	const n = 10_000
	keys := makeKeys(n)
	for name, f := range map[string]Factory[string]{
		"bucket":      TokenBucketFactory[string](TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}),
		"concurrency": ConcurrencyFactory[string](ConcurrencyOptions{PermitLimit: 1}),
	} {
		b.Run(name, func(b *testing.B) {
			p := weir.Must(NewPartitioned(byKey(f), &PartitionedOptions{IdleTimeout: time.Hour}))
			defer p.Close()
			for _, key := range keys {
				acquireOne(b, p, key)
			}
			reject := func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if l, err := p.TryAcquire(context.Background(), keys[i], 1); err != nil || l.Acquired() {
						b.Fatal("not rejected")
					}
					if i++; i == n {
						i = 0
					}
				}
			}
			b.Run("uncounted", reject)
			p.TopRejected(1)
			b.Run("counted", reject)
		})
	}
}
