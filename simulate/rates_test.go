package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The closed forms are the integrals of the rates.
func TestRates_Arrivals(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		rate Rate
		at   func(seconds float64) float64
	}{
		{ConstantRate{Rate: 30}, func(float64) float64 { return 30 }},
		{Ramp{From: 10, To: 40, For: 6 * s}, func(x float64) float64 { return min(10+5*x, 40) }},
		{Ramp{From: 40, To: 0, For: 4 * s}, func(x float64) float64 { return max(40-10*x, 0) }},
		{Sine{Mean: 30, Amplitude: 20, Period: 3 * s}, func(x float64) float64 { return 30 + 20*math.Sin(2*math.Pi*x/3) }},
		{
			Steps{Steps: []Step{{Rate: 20, For: 2 * s, Ramp: s}, {Rate: 5, For: 3 * s}, {Rate: 50, Ramp: 2 * s}}},
			func(x float64) float64 {
				switch {
				case x < 2:
					return min(20*x, 20)
				case x < 5:
					return 5
				default:
					return min(5+45*(x-5)/2, 50)
				}
			},
		},
	} {
		require.NoError(t, problemsOf(tt.rate))
		require.Zero(t, tt.rate.Arrivals(0))
		sum, last := 0.0, 0.0
		const step = time.Millisecond
		for at := time.Duration(0); at < 10*s; at += step {
			sum += tt.at((at + step/2).Seconds()) * step.Seconds()
			got := tt.rate.Arrivals(at + step)
			if math.Abs(sum-got) > 0.02 || got < last {
				t.Fatalf("%#v has %v arrivals in %v, and not %v", tt.rate, got, at+step, sum)
			}
			last = got
		}
	}
}

func TestRates_Huge(t *testing.T) {
	for _, rate := range []Rate{
		ConstantRate{Rate: 1e9}, Ramp{To: 1e9, For: math.MaxInt64}, Sine{Mean: 1e9, Amplitude: 1e9, Period: math.MaxInt64},
		Steps{Steps: []Step{{Rate: 1, For: math.MaxInt64, Ramp: math.MaxInt64}, {Rate: 1}}}, Bursts{Size: math.MaxInt32, Every: 1},
	} {
		require.NoError(t, problemsOf(rate))
		n := rate.Arrivals(math.MaxInt64)
		assert.True(t, n > 0 && n < 1e30, "%#v: %v", rate, n)
	}
}
