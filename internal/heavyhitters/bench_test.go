package heavyhitters

import (
	"hash/maphash"
	"math/rand"
	"strconv"
	"testing"
)

func BenchmarkAdd(b *testing.B) {
	keys, hashes := zipfKeys(1<<16, 1.1)
	for _, on := range []bool{false, true} {
		name := "off"
		if on {
			name = "on"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var c Counter[string]
			if on {
				c.Top(0)
			}
			i := 0
			for b.Loop() {
				c.Add(keys[i], hashes[i])
				i = (i + 1) % len(keys)
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		var c Counter[string]
		c.Top(0)
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i = (i + 1) % len(keys) {
				c.Add(keys[i], hashes[i])
			}
		})
	})
	for _, weight := range []int64{1, 8, 64} {
		b.Run("weight="+strconv.FormatInt(weight, 10), func(b *testing.B) {
			s := newSketch[string](0)
			i := 0
			for b.Loop() {
				s.weight.Store(weight)
				s.add(keys[i], hashes[i])
				i = (i + 1) % len(keys)
			}
		})
	}
}

// zipfKeys draws n keys by a Zipf distribution over a million, and returns them with their hashes.
func zipfKeys(n int, exponent float64) (keys []string, hashes []uint64) {
	seed := maphash.MakeSeed()
	z := rand.NewZipf(rand.New(rand.NewSource(1)), exponent, 1, 999_999)
	for range n {
		key := "user-" + strconv.FormatUint(z.Uint64(), 10)
		keys, hashes = append(keys, key), append(hashes, maphash.String(seed, key))
	}
	return keys, hashes
}
