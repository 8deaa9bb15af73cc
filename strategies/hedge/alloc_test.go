package hedge_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/hedge"
)

func TestAllocations(t *testing.T) {
	succeed := func(context.Context) error { return nil }
	for _, c := range []struct {
		name    string
		options hedge.Options
		most    float64
	}{
		{"in turn", hedge.Options{Delay: -1}, 0},
		{"in turn, with a budget", hedge.Options{Delay: -1, Budget: weir.Must(budget.New(nil))}, 0},
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

func BenchmarkExecute(b *testing.B) {
	succeed := func(context.Context) error { return nil }
	second := func(ctx context.Context) error {
		if hedge.Attempt(ctx) == 0 {
			<-ctx.Done()
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		options hedge.Options
		fn      func(context.Context) error
	}{
		{"in time", hedge.Options{}, succeed},
		{"in time, budget", hedge.Options{Budget: weir.Must(budget.New(nil))}, succeed},
		{"in turn", hedge.Options{Delay: -1}, succeed},
		{"at once", hedge.Options{AtOnce: true}, succeed},
		{"the second wins", hedge.Options{Delay: time.Nanosecond}, second},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := weir.Must(pipeline.New("bench", hedge.New(&c.options)))
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Execute(ctx, c.fn)
			}
		})
	}
}
