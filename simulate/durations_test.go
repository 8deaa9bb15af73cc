package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDurations(t *testing.T) {
	const n = 20_000
	draw := func(d Durations) (mean float64, shareBelow func(time.Duration) float64) {
		require.NoError(t, problemsOf(d))
		r := newRand(1, 1)
		all := make([]float64, n)
		for i := range all {
			all[i] = float64(d.Duration(r))
			if all[i] < 0 {
				t.Fatalf("%#v: %v", d, all[i])
			}
		}
		mean, _ = moments(all)
		return mean, func(limit time.Duration) float64 {
			below := 0
			for _, v := range all {
				if v < float64(limit) {
					below++
				}
			}
			return float64(below) / n
		}
	}
	ms := time.Millisecond
	within := func(want, got float64) { // four standard deviations of a share
		t.Helper()
		assert.InDelta(t, want, got, 4*math.Sqrt(want*(1-want)/n))
	}

	mean, below := draw(Exponential{Mean: 20 * ms})
	assert.InDelta(t, 20e6, mean, 4*20e6/math.Sqrt(n))
	within(0.5, below(13_862_944))
	within(0.99, below(time.Duration(20e6*math.Log(100))))

	mean, below = draw(Uniform{Min: 10 * ms, Max: 30 * ms})
	assert.InDelta(t, 20e6, mean, 4*20e6/math.Sqrt(12*n))
	assert.Zero(t, below(10*ms))
	within(0.25, below(15*ms))
	assert.Equal(t, 1.0, below(30*ms+1))

	_, below = draw(LogNormal{Median: 20 * ms, P99: 100 * ms})
	within(0.5, below(20*ms))
	within(0.99, below(100*ms))
	within(0.841345, below(time.Duration(20e6*math.Exp(math.Log(5)/normal99)))) // one standard deviation

	mean, _ = draw(Fixed{Time: 20 * ms})
	assert.InDelta(t, 20e6, mean, 1)

	for _, d := range []Durations{
		Exponential{Mean: math.MaxInt64}, Uniform{Max: math.MaxInt64}, LogNormal{Median: 1, P99: math.MaxInt64},
		LogNormal{Median: math.MaxInt64, P99: math.MaxInt64}, Fixed{}, Fixed{Time: math.MaxInt64}, Uniform{Min: 5, Max: 5},
	} {
		draw(d)
	}
}

func TestDurations_Validate(t *testing.T) {
	for want, d := range map[string]Durations{
		"simulate: Time must be at least 0, got -1s":                                                     Fixed{Time: -time.Second},
		"simulate: Mean must be more than 0, got 0s":                                                     Exponential{},
		"simulate: Max must be more than 0, got 0s":                                                      Uniform{},
		"simulate: Max must be at least Min, which is 2s, got 1s":                                        Uniform{Min: 2 * time.Second, Max: time.Second},
		"simulate: Min must be at least 0, got -1s":                                                      Uniform{Min: -time.Second, Max: time.Second},
		"simulate: P99 must be at least Median, which is 2s, got 1s":                                     LogNormal{Median: 2 * time.Second, P99: time.Second},
		"simulate: Median must be more than 0, got 0s; P99 must be at least Median, which is 0s, got 0s": LogNormal{},
	} {
		assert.EqualError(t, problemsOf(d), want)
	}
}
