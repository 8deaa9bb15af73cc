package random_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/random"
)

func source() *random.Source { return &random.Source{Rand: rand.New(rand.NewPCG(1, 2))} }

// draw returns some numbers of ctx.
func draw(ctx context.Context) (all []any) {
	for range 20 {
		f, d := random.Float64(ctx), random.UpTo(ctx, time.Second)
		all = append(all, f, d)
	}
	return all
}

func TestWith(t *testing.T) {
	same := draw(random.With(t.Context(), source()))
	assert.Equal(t, same, draw(random.With(t.Context(), source())))
	assert.NotEqual(t, same, draw(t.Context()))
	other := draw(t.Context())
	assert.NotEqual(t, other, draw(t.Context()))
}

func TestRanges(t *testing.T) {
	for _, ctx := range []context.Context{t.Context(), random.With(t.Context(), source())} {
		sum := 0.0
		for range 10_000 {
			f := random.Float64(ctx)
			assert.True(t, f >= 0 && f < 1)
			sum += f
			d := random.UpTo(ctx, 3)
			assert.True(t, d >= 0 && d < 3)
		}
		assert.InDelta(t, 5000, sum, 300, "ten standard deviations")
		assert.Zero(t, random.UpTo(ctx, 1))
	}
}

func TestAllocations(t *testing.T) {
	ctx := random.With(t.Context(), source())
	assert.Zero(t, testing.AllocsPerRun(100, func() { random.Float64(ctx) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { random.UpTo(t.Context(), 5) }))
}
