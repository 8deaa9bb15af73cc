package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/simulate/internal/input"
)

// timesOf returns the arrivals of an open load.
func timesOf(t *testing.T, rate Rate, length time.Duration, poisson bool, seed uint64) []time.Duration {
	t.Helper()
	require.NoError(t, problemsOf(rate))
	a := newArrivals(&Load{For: length, Open: &Open{Rate: rate, Poisson: poisson}}, seed)
	defer a.stop()
	var all []time.Duration
	for {
		q, ok, err := a.next()
		require.NoError(t, err)
		if !ok {
			return all
		}
		if q.At < 0 || q.At >= length || len(all) > 0 && q.At < all[len(all)-1] {
			t.Fatalf("%v is out of order", q.At)
		}
		all = append(all, q.At)
	}
}

func TestArrivals_EvenlySpaced(t *testing.T) {
	var want []time.Duration
	for i := range 300 {
		want = append(want, time.Duration(i)*10*time.Millisecond)
	}
	assert.Equal(t, want, timesOf(t, ConstantRate{Rate: 100}, 3*time.Second, false, 1))
	assert.Len(t, timesOf(t, ConstantRate{Rate: 1.5}, time.Second, false, 1), 2)
	assert.Len(t, timesOf(t, Ramp{To: 100, For: time.Second}, 2*time.Second, false, 1), 150)
	assert.Len(t, timesOf(t, Sine{Mean: 100, Amplitude: 100, Period: time.Second}, 5*time.Second, false, 1), 500)

	// A ramp from 0 has its n-th arrival where the parabola is n.
	for n, at := range timesOf(t, Ramp{To: 100, For: time.Second}, time.Second, false, 1) {
		assert.InDelta(t, math.Sqrt(float64(n)/50)*1e9, float64(at), 1.5)
	}
}

func TestArrivals_Bursts(t *testing.T) {
	s := time.Second
	bursts := Bursts{Size: 2, Every: s, First: s}
	assert.Equal(t, []time.Duration{s, s, 2 * s, 2 * s}, timesOf(t, bursts, 3*s, false, 1))
	assert.Equal(t, []time.Duration{0, 0, 0}, timesOf(t, Bursts{Size: 3}, time.Hour, false, 1))
	assert.Equal(t, []time.Duration{0, 0, 0, s / 2, s, s, s, 3 * s / 2},
		timesOf(t, Sum{ConstantRate{Rate: 2}, Bursts{Size: 2, Every: s}}, 2*s, false, 1))
}

func TestArrivals_Pause(t *testing.T) {
	s := time.Second
	steps := Steps{Steps: []Step{{For: s}, {Rate: 2, For: s}, {For: 5 * s}, {Rate: 1, For: s}}}
	assert.Equal(t, []time.Duration{s, 3 * s / 2, 7 * s}, timesOf(t, steps, time.Hour, false, 1))
}

// The counts of a Poisson process of a second each have a variance that is their mean, for each form of its rate.
func TestArrivals_Poisson(t *testing.T) {
	for _, rate := range []Rate{
		ConstantRate{Rate: 100},
		Sum{ConstantRate{Rate: 50}, Ramp{From: 50, To: 50, For: time.Second}},
		Sine{Mean: 100, Amplitude: 100, Period: time.Second},
		Bursts{Size: 100, Every: time.Second},
	} {
		const seconds = 1000
		counts := make([]float64, seconds)
		for _, at := range timesOf(t, rate, seconds*time.Second, true, 7) {
			counts[at/time.Second]++
		}
		mean, variance := moments(counts)
		assert.InDelta(t, 100, mean, 4*math.Sqrt(100.0/seconds), "%T", rate)
		assert.InDelta(t, 100, variance, 4*100*math.Sqrt(2.0/seconds), "%T", rate)
	}
}

// moments returns the mean and the variance.
func moments(values []float64) (mean, variance float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, variance
}

// What one part of the load draws does not change another.
func TestArrivals_Streams(t *testing.T) {
	draw := func(l Load) (requests []input.Request) {
		l.For = 10 * time.Second
		a := newArrivals(&l, 3)
		defer a.stop()
		for {
			q, ok, err := a.next()
			require.NoError(t, err)
			if !ok {
				return requests
			}
			requests = append(requests, q)
		}
	}
	open := &Open{Rate: ConstantRate{Rate: 100}, Poisson: true}
	bare := draw(Load{Open: open})
	keyed := draw(Load{Open: open, Keys: ZipfKeys{Count: 10, Exponent: 1}})
	both := draw(Load{Open: open, Keys: ZipfKeys{Count: 10, Exponent: 1}, Cost: UniformCost{Min: 1, Max: 9}})
	require.Len(t, both, len(bare))
	costs := map[int]bool{}
	for i := range both {
		assert.Equal(t, bare[i].At, keyed[i].At)
		assert.Equal(t, 1, keyed[i].Cost)
		assert.Equal(t, keyed[i].Key, both[i].Key)
		assert.Equal(t, bare[i].At, both[i].At)
		costs[both[i].Cost] = true
	}
	assert.Len(t, costs, 9)
}

type badRate struct{ total float64 }

func (b badRate) Arrivals(time.Duration) float64 { return b.total }

// A Rate of the program that breaks its promise ends in an error or in an end, not in a loop.
func TestArrivals_BadRate(t *testing.T) {
	for _, total := range []float64{math.NaN(), math.Inf(1), 1e300} {
		a := newArrivals(&Load{For: time.Second, Open: &Open{Rate: badRate{total}}}, 1)
		_, ok, err := a.next()
		assert.False(t, ok)
		assert.ErrorContains(t, err, "too many")
	}
	assert.Len(t, timesOf(t, badRate{10}, time.Second, false, 1), 10)
	assert.Empty(t, timesOf(t, badRate{-10}, time.Second, false, 1))
}

func TestArrivals_Recording(t *testing.T) {
	r, err := RecordingOf([]Request{{At: 1, Key: "a"}, {At: 2, Cost: 5}, {At: 3}})
	require.NoError(t, err)
	for length, want := range map[time.Duration]int{1: 0, 2: 1, 3: 3, 4: 3} {
		a := newArrivals(&Load{For: length, Recording: r}, 1)
		got := 0
		for {
			_, ok, err := a.next()
			require.NoError(t, err)
			if !ok {
				break
			}
			got++
		}
		a.stop()
		assert.Equal(t, want, got, "%v", length)
	}
}

// Requests of one instant begin at instants of their own, however many they are.
func TestRun_ArrivalsAtOnce(t *testing.T) {
	r := through(t, Scenario{Load: atOnce(3000), Windows: []time.Duration{1}})
	assert.EqualValues(t, 1, r.Most[0].Permits)
}
