package retry_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir/strategies/retry"
)

func TestAllocations(t *testing.T) {
	p, ctx := with(&retry.Options{Delay: -1}), t.Context()
	succeed := func(context.Context) error { return nil }
	calls := 0
	failOnce := func(context.Context) error {
		calls++
		if calls%2 == 1 {
			return errBoom
		}
		return nil
	}
	if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, succeed) }); got != 0 {
		t.Errorf("first attempt succeeds: %v allocations, want 0", got)
	}
	if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, failOnce) }); got != 0 {
		t.Errorf("one failure: %v allocations, want 0", got)
	}
}
