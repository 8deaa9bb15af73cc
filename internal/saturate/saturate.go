// Package saturate has arithmetic that stops at the largest number instead of overflowing.
package saturate

import (
	"math"
	"math/bits"
	"time"
)

// Add returns a + b, or the number that is nearest to it.
func Add[T ~int64](a, b T) T {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	default:
		return a + b
	}
}

// Mul returns a · b, or the number that is nearest to it.
func Mul[T ~int64](a, b T) T {
	high, low := bits.Mul64(magnitude(int64(a)), magnitude(int64(b)))
	negative, most := (a < 0) != (b < 0), uint64(math.MaxInt64)
	if negative {
		most++
	}
	if high != 0 || low > most {
		low = most
	}
	if negative {
		return -T(low)
	}
	return T(low)
}

// Micros returns n µs, or the longest time.
func Micros(n int64) time.Duration { return time.Duration(Mul(n, int64(time.Microsecond))) }

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}
