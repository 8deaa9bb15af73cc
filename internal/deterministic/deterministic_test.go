package deterministic_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/deterministic"
)

func source() *deterministic.Source { return &deterministic.Source{Rand: rand.New(rand.NewPCG(1, 2))} }

// draw returns some numbers of ctx.
func draw(ctx context.Context) (all []any) {
	for range 20 {
		f, d := deterministic.Float64(ctx), deterministic.UpTo(ctx, time.Second)
		all = append(all, f, d)
	}
	return all
}

func TestWith(t *testing.T) {
	same := draw(deterministic.WithRandom(t.Context(), source()))
	assert.Equal(t, same, draw(deterministic.WithRandom(t.Context(), source())))
	assert.NotEqual(t, same, draw(t.Context()))
	other := draw(t.Context())
	assert.NotEqual(t, other, draw(t.Context()))
}

func TestRanges(t *testing.T) {
	for _, ctx := range []context.Context{t.Context(), deterministic.WithRandom(t.Context(), source())} {
		sum := 0.0
		for range 10_000 {
			f := deterministic.Float64(ctx)
			assert.True(t, f >= 0 && f < 1)
			sum += f
			d := deterministic.UpTo(ctx, 3)
			assert.True(t, d >= 0 && d < 3)
		}
		assert.InDelta(t, 5000, sum, 300, "ten standard deviations")
		assert.Zero(t, deterministic.UpTo(ctx, 1))
	}
}

func TestAllocations(t *testing.T) {
	ctx := deterministic.WithRandom(t.Context(), source())
	assert.Zero(t, testing.AllocsPerRun(100, func() { deterministic.Float64(ctx) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { deterministic.UpTo(t.Context(), 5) }))
}
