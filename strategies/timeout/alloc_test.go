package timeout_test

import (
	"context"
	"testing"
	"time"
)

func TestAllocations(t *testing.T) {
	p, ctx := make1(time.Minute, nil), t.Context()
	callbacks := []struct {
		name  string
		fn    func(ctx context.Context) error
		extra float64 // above context.WithTimeout
	}{
		{"Done is not called", func(ctx context.Context) error { _, _ = ctx.Deadline(); return ctx.Err() }, -3},
		{"asked for Done", func(ctx context.Context) error { _ = ctx.Done(); return nil }, 2},
		{"a child", func(ctx context.Context) error {
			_, cancel := context.WithCancel(ctx)
			cancel()
			return nil
		}, 2},
	}
	for _, c := range callbacks {
		ours := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, c.fn) })
		theirs := testing.AllocsPerRun(200, func() {
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			_ = c.fn(limited)
			cancel()
		})
		if ours > theirs+c.extra {
			t.Errorf("%s: %v allocations, context.WithTimeout makes %v", c.name, ours, theirs)
		}
	}
	if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, callbacks[0].fn) }); got != 1 {
		t.Errorf("%v allocations without Done, want 1", got)
	}
}
