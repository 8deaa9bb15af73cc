package simulate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

	for want, c := range map[string]Costs{
		"simulate: Permits must be at least 0, got -1":                                 FixedCost{Permits: -1},
		"simulate: Max must be at least 3, got 2":                                      UniformCost{Min: 3, Max: 2},
		"simulate: Max must be at least 1, got 0":                                      UniformCost{},
		"simulate: Shares must have at least one kind of requests":                     MixedCost{},
		"simulate: Shares[0].Weight must be more than 0 and at most 2147483647, got 0": MixedCost{Shares: []CostShare{{Permits: 1}}},
	} {
		assert.EqualError(t, problemsOf(c), want)
	}
}
