package limiter

import "math/bits"

// A divisor divides by a fixed number, by multiplication: a division takes several times as long. The method is
// that of Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994. The zero
// divisor is not usable.
type divisor struct {
	factor uint64
	shift  uint8
}

// newDivisor returns a divisor by d, which is at least 1.
func newDivisor(d int64) divisor {
	shift := bits.Len64(uint64(d) - 1)
	if shift == 0 {
		return divisor{factor: 1 << 63}
	}
	factor, rest := bits.Div64(1<<(shift-1), 0, uint64(d)) // 2^(63+shift) / d, rounded up
	if rest > 0 {
		factor++
	}
	return divisor{factor: factor, shift: uint8(shift)}
}

// quotient returns x / d, exactly; x is not negative.
func (d divisor) quotient(x int64) int64 {
	high, _ := bits.Mul64(uint64(x)<<1, d.factor)
	return int64(high >> (d.shift & 63))
}
