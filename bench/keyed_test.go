package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var keyCounts = []int{10_000, 1_000_000}

// BenchmarkKeyed takes permits of token buckets by key, for keys that are drawn at random and have been seen before.
// The time includes drawing a key and the cache misses on its string, which are the same for all contenders.
func BenchmarkKeyed(b *testing.B) {
	for _, n := range keyCounts {
		keys := keyNames(n)
		for _, s := range stores {
			b.Run(fmt.Sprintf("keys=%d/by=%s", n, s.name), func(b *testing.B) {
				st := filled(b, s.open, keys)
				b.Run("goroutines=1", func(b *testing.B) { alone(b, st.randomKey(keys)) })
				b.Run("goroutines=2", func(b *testing.B) {
					together(b, func() func() bool { return st.randomKey(keys) })
				})
			})
		}
	}
}

// filled opens a store in which every key has been seen.
func filled(b *testing.B, open func(*testing.B) store, keys []string) store {
	skipLarge(b, len(keys))
	st := open(b)
	b.Cleanup(st.close)
	for _, key := range keys {
		if !st.try(key) {
			b.Fatal("rejected: ", key)
		}
	}
	return st
}

// randomKey returns a function that asks for random keys. Each has its own source: goroutines with the same source
// would ask for the same keys.
func (st store) randomKey(keys []string) func() bool {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	n := uint64(len(keys))
	return func() bool { return st.try(keys[random.Uint64N(n)]) }
}

// skipLarge skips benchmarks with many keys if -short is set.
func skipLarge(b *testing.B, keys int) {
	if testing.Short() && keys > 10_000 {
		b.Skip("large")
	}
}
