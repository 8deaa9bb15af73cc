package simulate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every frequency is within five standard deviations of the theory.
func TestKeys_Frequencies(t *testing.T) {
	const n = 300_000
	zipf := func(count int, exponent float64) map[string]float64 {
		sum, shares := 0.0, make(map[string]float64)
		for i := range count {
			shares[keyName(i+1)] = math.Pow(float64(i+1), -exponent)
			sum += shares[keyName(i+1)]
		}
		for i := range count {
			shares[keyName(i+1)] /= sum
		}
		return shares
	}
	abuser := map[string]float64{"abuser": 0.4}
	for i := range 20 {
		abuser[keyName(i+1)] = 0.6 / 20
	}
	for _, tt := range []struct {
		keys   Keys
		shares map[string]float64
	}{
		{UniformKeys{Count: 30}, zipf(30, 0)},
		{AbuserKeys{Share: 0.4, Others: 20}, abuser},
		{AbuserKeys{Others: 20}, zipf(20, 0)},
		{AbuserKeys{Share: 1, Others: 1}, map[string]float64{"abuser": 1}},
		{ZipfKeys{Count: 1, Exponent: 2}, zipf(1, 2)},
		{ZipfKeys{Count: 2, Exponent: 0.001}, zipf(2, 0.001)},
		{ZipfKeys{Count: 100, Exponent: 0.5}, zipf(100, 0.5)},
		{ZipfKeys{Count: 1000, Exponent: 1}, zipf(1000, 1)},
		{ZipfKeys{Count: 1000, Exponent: 1 + 1e-12}, zipf(1000, 1)},
		{ZipfKeys{Count: 100, Exponent: 2.5}, zipf(100, 2.5)},
		{ZipfKeys{Count: 10, Exponent: maxExponent}, zipf(10, maxExponent)},
	} {
		require.NoError(t, problemsOf(tt.keys))
		keys, r, counts := prepared(tt.keys), newRand(1, 1), make(map[string]float64)
		for range n {
			counts[keys.Key(r)]++
		}
		total := 0.0
		for key, share := range tt.shares {
			total += counts[key]
			assert.InDelta(t, share*n, counts[key], 5*math.Sqrt(share*(1-share)*n)+0.5, "%#v: %s", tt.keys, key)
		}
		assert.Equal(t, float64(n), total, "%#v", tt.keys)
	}
}

// Keys of millions take no table, and all of them are drawn.
func TestZipfKeys_Many(t *testing.T) {
	keys := ZipfKeys{Count: maxKeys, Exponent: 0.2}
	require.NoError(t, problemsOf(keys))
	z := keys.prepared().(*zipf)
	r, above := rand.New(rand.NewPCG(1, 2)), 0
	const n = 100_000
	for range n {
		k := z.draw(r)
		if k < 1 || k > maxKeys {
			t.Fatal(k)
		}
		if k > maxKeys/2 {
			above++
		}
	}
	want := 1 - math.Pow(0.5, 0.8) // the integral of the density
	assert.InDelta(t, want, float64(above)/n, 0.007)
	assert.Equal(t, keys.Key(newRand(5, 5)), z.Key(newRand(5, 5)))
}

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

func TestCosts(t *testing.T) {
	const n = 100_000
	share := func(c Costs, cost int) float64 {
		require.NoError(t, problemsOf(c))
		r, times := newRand(1, 1), 0
		for range n {
			if c.Cost(r) == cost {
				times++
			}
		}
		return float64(times) / n
	}
	assert.Equal(t, 1.0, share(FixedCost{Permits: 7}, 7))
	assert.InDelta(t, 0.25, share(UniformCost{Min: 2, Max: 5}, 5), 0.006)
	mixed := MixedCost{Shares: []CostShare{{Permits: 1, Weight: 3}, {Permits: 50, Weight: 1}}}
	assert.InDelta(t, 0.75, share(mixed, 1), 0.006)
	assert.InDelta(t, 0.25, share(mixed, 50), 0.006)
	assert.Zero(t, share(UniformCost{Max: math.MaxInt}, -1))

}

func TestKinds_Validate(t *testing.T) {
	for want, k := range map[string]kind{
		"simulate: Count must be at least 1 and at most 1000000000, got 0":                                      UniformKeys{},
		"simulate: Share must be from 0 to 1, got 1.5; Others must be at least 1 and at most 1000000000, got 0": AbuserKeys{Share: 1.5},
		"simulate: Exponent must be more than 0 and at most 40, got 0":                                          ZipfKeys{Count: 1},
		"simulate: Time must be at least 0, got -1s":                                                            Fixed{Time: -time.Second},
		"simulate: Mean must be more than 0, got 0s":                                                            Exponential{},
		"simulate: Max must be more than 0, got 0s":                                                             Uniform{},
		"simulate: Max must be at least Min, which is 2s, got 1s":                                               Uniform{Min: 2 * time.Second, Max: time.Second},
		"simulate: Min must be at least 0, got -1s":                                                             Uniform{Min: -time.Second, Max: time.Second},
		"simulate: P99 must be at least Median, which is 2s, got 1s":                                            LogNormal{Median: 2 * time.Second, P99: time.Second},
		"simulate: Median must be more than 0, got 0s; P99 must be at least Median, which is 0s, got 0s":        LogNormal{},
		"simulate: Rate must be more than 0 and at most 1e9, got 0":                                             ConstantRate{},
		"simulate: Rate must be more than 0 and at most 1e9, got NaN":                                           ConstantRate{Rate: math.NaN()},
		"simulate: To must be more than 0 if From is 0, got 0":                                                  Ramp{For: 1},
		"simulate: To must be at least 0 and at most 1e9, got -1":                                               Ramp{From: 1, To: -1, For: 1},
		"simulate: For must be more than 0, got 0s":                                                             Ramp{To: 1},
		"simulate: Steps must have at least one step":                                                           Steps{},
		"simulate: Steps must have a step with a Rate of more than 0":                                           Steps{Steps: []Step{{For: 1}}},
		"simulate: Amplitude must be at least 0 and at most Mean, which is 1, got 2":                            Sine{Mean: 1, Amplitude: 2, Period: 1},
		"simulate: Size must be at least 1, got 0":                                                              Bursts{},
		"simulate: Sum must have at least one Rate":                                                             Sum{},
		"simulate: [0] must not be nil; [1].Size must be at least 1, got 0":                                     Sum{nil, Bursts{}},
		"simulate: Steps[0].For must be more than 0; only the last step can be without an end, got 0s; " +
			"Steps[1].Ramp must be at least 0 and at most For, which is 1s, got 2s": Steps{Steps: []Step{{Rate: 1}, {For: time.Second, Ramp: 2 * time.Second}}},
		"simulate: Permits must be at least 0, got -1":                                 FixedCost{Permits: -1},
		"simulate: Max must be at least 3, got 2":                                      UniformCost{Min: 3, Max: 2},
		"simulate: Max must be at least 1, got 0":                                      UniformCost{},
		"simulate: Shares must have at least one kind of requests":                     MixedCost{},
		"simulate: Shares[0].Weight must be more than 0 and at most 2147483647, got 0": MixedCost{Shares: []CostShare{{Permits: 1}}},
	} {
		assert.EqualError(t, problemsOf(k), want)
	}
}
