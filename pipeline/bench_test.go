package pipeline_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

type passThrough struct{}

func (passThrough) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return next.Run(ctx)
}

func passThroughs(n int) []pipeline.Strategy {
	s := make([]pipeline.Strategy, n)
	for i := range s {
		s[i] = passThrough{}
	}
	return s
}

func BenchmarkExecute(b *testing.B) {
	for _, n := range []int{0, 1, 2, 5, 10} {
		b.Run(fmt.Sprintf("strategies=%d", n), func(b *testing.B) {
			p := weir.Must(pipeline.New("bench", passThroughs(n)...))
			ctx := b.Context()
			fn := func(context.Context) error { return nil }
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Execute(ctx, fn); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
