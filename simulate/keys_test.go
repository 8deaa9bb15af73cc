package simulate

import (
	"math"
	"math/rand/v2"
	"testing"

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

func TestKeys_Validate(t *testing.T) {
	for want, k := range map[string]Keys{
		"simulate: Count must be at least 1 and at most 1000000000, got 0":                                      UniformKeys{},
		"simulate: Share must be from 0 to 1, got 1.5; Others must be at least 1 and at most 1000000000, got 0": AbuserKeys{Share: 1.5},
		"simulate: Exponent must be more than 0 and at most 40, got 0":                                          ZipfKeys{Count: 1},
	} {
		assert.EqualError(t, problemsOf(k), want)
	}
}
