package retry_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
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

func BenchmarkExecute(b *testing.B) {
	calls := 0
	callbacks := map[string]func(context.Context) error{
		"succeeds": func(context.Context) error { return nil },
		"one failure": func(context.Context) error {
			calls++
			if calls%2 == 1 {
				return errBoom
			}
			return nil
		},
	}
	for name, fn := range callbacks {
		b.Run(name, func(b *testing.B) {
			p := weir.Must(pipeline.New("bench", retry.New(&retry.Options{Delay: -1})))
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				_ = p.Execute(ctx, fn)
			}
		})
	}
}
