package simulate

import "math/bits"

// A bitset has a bit for each request, by its number.
type bitset []uint64

// set sets bit i, and makes the bitset larger where it must be.
func (b *bitset) set(i int64) {
	for int64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

// without returns how many bits of b are not set in o.
func (b bitset) without(o bitset) int64 {
	n := 0
	for i, word := range b {
		if i < len(o) {
			word &^= o[i]
		}
		n += bits.OnesCount64(word)
	}
	return int64(n)
}
