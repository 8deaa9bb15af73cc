package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDivisor_Quotient(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(x, d int64) {
		t.Helper()
		require.Equal(t, x/d, newDivisor(d).quotient(x), "%d / %d", x, d)
	}
	divisors := []int64{1, 2, 3, 5, 7, 1000, int64(time.Second), int64(time.Hour), 1<<32 - 1, 1 << 32, 1<<32 + 1, 1<<62 - 1, 1 << 62, 1<<62 + 1, math.MaxInt64 - 1, math.MaxInt64}
	for range 2000 {
		divisors = append(divisors, 1+r.Int64()>>r.IntN(63))
	}
	for _, d := range divisors {
		for _, x := range []int64{0, 1, d - 1, d, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64 / d * d, math.MaxInt64/d*d - 1} {
			check(x, d)
		}
		for range 100 {
			check(r.Int64()>>r.IntN(63), d)
		}
	}
}

func FuzzDivisor(f *testing.F) {
	f.Add(int64(math.MaxInt64), int64(3))
	f.Fuzz(func(t *testing.T, x, d int64) {
		if x < 0 || d < 1 {
			t.Skip()
		}
		require.Equal(t, x/d, newDivisor(d).quotient(x))
	})
}
