package chaos_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/strategies/chaos"
)

// The chance comes from the random numbers of the context, so that package simulate can repeat an execution.
func TestOptions_RandomOfContext(t *testing.T) {
	outcomes := func(seed uint64, r func() float64) (all []error) {
		p := with(chaos.NewFault(&chaos.FaultOptions{
			Options: chaos.Options{Enabled: true, Rate: 0.5, Rand: r},
			Err:     errBoom,
		}))
		ctx := deterministic.WithRandom(t.Context(), &deterministic.Source{Rand: rand.New(rand.NewPCG(seed, 0))})
		for range 100 {
			all = append(all, p.Execute(ctx, func(context.Context) error { return nil }))
		}
		return all
	}
	first := outcomes(1, nil)
	assert.Subset(t, first, []error{nil, errBoom})
	assert.Equal(t, first, outcomes(1, nil))
	assert.NotEqual(t, first, outcomes(2, nil))
	for _, err := range outcomes(1, func() float64 { return 0.4 }) {
		assert.ErrorIs(t, err, errBoom, "Rand comes first")
	}
}
