package registry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

type passThrough struct{}

func (passThrough) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return next.Run(ctx)
}

func BenchmarkGet(b *testing.B) {
	r := registry.New(nil)
	require.NoError(b, r.Define("orders", with()))
	b.Run("usual", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Get("orders"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("instance", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.GetInstance("orders", "eu"); err != nil {
				b.Fatal(err)
			}
		}
	})
	require.NoError(b, r.Close(b.Context()))
}

// BenchmarkReloadThousand gives 1,000 limiters new limits: those of one pipeline, or of as many pipelines.
func BenchmarkReloadThousand(b *testing.B) {
	for _, pipelines := range []int{1, 1000} {
		b.Run(fmt.Sprintf("pipelines=%d", pipelines), func(b *testing.B) {
			r := registry.New(nil)
			limit := 1
			for i := range pipelines {
				name := fmt.Sprint(i)
				require.NoError(b, r.Define(name, func(b *registry.Builder) error {
					for j := range 1000 / pipelines {
						b.Concurrency(fmt.Sprint(name, "/", j), one(limit))
					}
					return nil
				}))
				_, err := r.Get(name)
				require.NoError(b, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				limit++
				if err := r.Reload(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, r.Close(b.Context()))
		})
	}
}
