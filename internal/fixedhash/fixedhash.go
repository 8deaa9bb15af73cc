// Package fixedhash is how package simulate makes keyed limiters hash their keys in the same way in each process. Which
// key such a limiter forgets when it has too many depends on the hash, which otherwise has a random seed.
package fixedhash

// Use makes a limiter that is partitioned by texts use [String], before its first use. Package limiter sets it.
var Use = func(limiter any) {}

// String returns the hash of s by FNV-1a, with the bits mixed as in SplitMix64.
func String(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
