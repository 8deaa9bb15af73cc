package saturate_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/saturate"
)

func TestAdd(t *testing.T) {
	for _, tt := range []struct{ a, b, want int64 }{
		{1, 2, 3},
		{5, -7, -2},
		{math.MaxInt64 - 2, 2, math.MaxInt64},
		{math.MaxInt64 - 2, 3, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, math.MinInt64, -1},
		{math.MinInt64 + 2, -2, math.MinInt64},
		{math.MinInt64 + 2, -3, math.MinInt64},
		{math.MinInt64, math.MinInt64, math.MinInt64},
	} {
		assert.Equal(t, tt.want, saturate.Add(tt.a, tt.b), "%d + %d", tt.a, tt.b)
		assert.Equal(t, tt.want, saturate.Add(tt.b, tt.a), "%d + %d", tt.b, tt.a)
	}
	assert.Equal(t, 3*time.Second, saturate.Add(time.Second, 2*time.Second))
}

func TestMul(t *testing.T) {
	for _, tt := range []struct{ a, b, want int64 }{
		{3, -4, -12},
		{0, math.MinInt64, 0},
		{math.MaxInt64 / 2, 2, math.MaxInt64 - 1},
		{math.MaxInt64/2 + 1, 2, math.MaxInt64},
		{math.MaxInt64, -2, math.MinInt64},
		{math.MinInt64, -1, math.MaxInt64},
		{math.MinInt64, math.MinInt64, math.MaxInt64},
	} {
		assert.Equal(t, tt.want, saturate.Mul(tt.a, tt.b), "%d * %d", tt.a, tt.b)
		assert.Equal(t, tt.want, saturate.Mul(tt.b, tt.a), "%d * %d", tt.b, tt.a)
	}
}
