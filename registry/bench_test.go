package registry_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

type passThrough struct{}

func (passThrough) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return next.Run(ctx)
}

// BenchmarkExecute compares a pipeline that stands alone with a registry's handle. What
// the handle costs more is counting the execution.
func BenchmarkExecute(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		for _, n := range []int{0, 1, 5} {
			strategies := make([]pipeline.Strategy, n)
			for i := range strategies {
				strategies[i] = passThrough{}
			}
			plain := weir.Must(pipeline.New("plain", strategies...))
			r := registry.New(nil)
			require.NoError(b, r.Define("handle", with(strategies...)))
			handle, err := r.Get("handle")
			require.NoError(b, err)
			for _, p := range []*pipeline.Pipeline{plain, handle} {
				b.Run(fmt.Sprintf("goroutines=%d/strategies=%d/%s", goroutines, n, p.Name()), func(b *testing.B) {
					execute(b, p, goroutines)
				})
			}
			require.NoError(b, r.Close(b.Context()))
		}
	}
}

func execute(b *testing.B, p *pipeline.Pipeline, goroutines int) {
	b.ReportAllocs()
	if goroutines == 1 {
		ctx := b.Context()
		for b.Loop() {
			if err := p.Execute(ctx, nothing); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines)) // one each
	b.RunParallel(func(pb *testing.PB) {
		ctx := b.Context()
		for pb.Next() {
			if err := p.Execute(ctx, nothing); err != nil {
				b.Error(err)
			}
		}
	})
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

func BenchmarkReload(b *testing.B) {
	r := registry.New(nil)
	limit := 0
	require.NoError(b, r.Define("orders", func(b *registry.Builder) error {
		limit++
		b.Concurrency("l", one(limit))
		b.Add(passThrough{})
		return nil
	}))
	_, err := r.Get("orders")
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Reload(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
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
