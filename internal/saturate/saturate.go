// Package saturate has arithmetic that stops at the largest number instead of overflowing.
package saturate

import "math"

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
	if a == 0 || b == 0 {
		return 0
	}
	product := a * b
	overflows := a == -1 && b == math.MinInt64 || b == -1 && a == math.MinInt64 // the quotient overflows, too
	if product/b == a && !overflows {
		return product
	}
	if (a > 0) == (b > 0) {
		return math.MaxInt64
	}
	return math.MinInt64
}
