package adaptive_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
)

// What an execution costs: the lease, what tells its limiter of the outcome, and
// what failsafe-go measures with.
func TestAllocations(t *testing.T) {
	succeed := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		limiter limiter.Limiter
		most    float64
	}{
		"limiter":   {weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 10, MaxLimit: 10})), 6},
		"throttler": {weir.Must(adaptive.NewThrottler(nil)), 5},
	} {
		p, ctx := weir.Must(pipeline.New("orders", adaptive.New(c.limiter, nil))), t.Context()
		if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, succeed) }); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.most)
		} else {
			t.Logf("%s: %v allocations", name, got)
		}
	}
}
