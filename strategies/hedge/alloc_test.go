package hedge_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir/strategies/hedge"
)

func TestAllocations(t *testing.T) {
	succeed := func(context.Context) error { return nil }
	for _, c := range []struct {
		name    string
		options hedge.Options
		most    float64
	}{
		{"no hedges", hedge.Options{MaxHedges: -1}, 0},
		// The race, its channel, the goroutine, two for the context, three for the timer.
		{"in time", hedge.Options{}, 8},
	} {
		p, ctx := with(&c.options), context.Background()
		if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, succeed) }); got > c.most {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.most)
		}
	}
}
