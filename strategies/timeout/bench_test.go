package timeout_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

func BenchmarkExecute(b *testing.B) {
	p := weir.Must(pipeline.New("bench", timeout.New(time.Minute, nil)))
	cancellable := b.Context()
	callbacks := []struct {
		name string
		fn   func(ctx context.Context) error
	}{
		{"unasked", func(context.Context) error { return nil }},
		{"done", func(ctx context.Context) error { _ = ctx.Done(); return nil }},
		{"child", func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			_ = child
			cancel()
			return nil
		}},
	}
	for _, c := range callbacks {
		for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": cancellable} {
			b.Run("weir/"+c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = p.Execute(ctx, c.fn)
				}
			})
			b.Run("context.WithTimeout/"+c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					limited, cancel := context.WithTimeout(ctx, time.Minute)
					_ = c.fn(limited)
					cancel()
				}
			})
		}
	}
}
