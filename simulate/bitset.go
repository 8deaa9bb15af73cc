package simulate

// A bitset has a bit for each request, by its number.
type bitset []uint64

// set sets bit i, and makes the bitset larger where it must be.
func (b *bitset) set(i int64) {
	for int64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}
