package registry_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// slowly takes a minute before what comes next.
type slowly struct{}

func (slowly) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	time.Sleep(10 * time.Second)
	return next.Run(ctx)
}

// An execution that has begun in an outer pipeline comes to its end, also if the
// pipelines that it has yet to come to are taken out meanwhile.
func TestRemove_ExecutionsEndInContainedPipelines(t *testing.T) {
	without := func(*registry.Builder) error { return nil }
	for name, takeOut := range map[string]func(*registry.Registry) error{
		"all removed": func(r *registry.Registry) error { return r.Remove(context.Background(), "outer", "middle", "inner") },
		"outer stays": func(r *registry.Registry) error {
			return r.Apply(context.Background(), registry.Change{
				Define: map[string]registry.BuildFunc{"outer": without}, Remove: []string{"middle", "inner"},
			})
		},
		"one by one": func(r *registry.Registry) error {
			for _, name := range []string{"outer", "middle", "inner"} {
				if err := r.Remove(context.Background(), name); err != nil {
					return err
				}
			}
			return nil
		},
		"closed": func(r *registry.Registry) error {
			go func() { _ = r.Close(context.Background()) }()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				var disposed atomic.Bool
				require.NoError(t, r.Define("inner", func(b *registry.Builder) error {
					b.OnDispose(func() error { disposed.Store(true); return nil })
					b.Add(ratelimit.New(b.Concurrency("slots", limiter.ConcurrencyOptions{PermitLimit: 1}), nil))
					return nil
				}))
				embed := func(inner string) registry.BuildFunc {
					return func(b *registry.Builder) error {
						b.Add(slowly{})
						return containing(inner)(b)
					}
				}
				require.NoError(t, r.Define("middle", embed("inner")))
				require.NoError(t, r.Define("outer", func(b *registry.Builder) error {
					middle, err := b.Pipeline("middle")
					if err == nil { // in a pipeline of the program, which counts no executions
						b.Add(slowly{}, pipeline.Embed(weir.Must(pipeline.New("program", pipeline.Embed(middle)))))
					}
					return err
				}))
				outer, inner := get(t, r, "outer"), get(t, r, "inner")
				done := make(chan error)
				go func() { done <- outer.Execute(context.Background(), nothing) }()
				synctest.Wait()
				require.NoError(t, takeOut(r))
				synctest.Wait()
				assert.ErrorIs(t, inner.Execute(t.Context(), nothing), pipeline.ErrClosed, "for those who begin")
				assert.False(t, disposed.Load())
				assert.NoError(t, <-done)
				synctest.Wait()
				assert.True(t, disposed.Load())
				assert.Zero(t, r.OwnedLimiters())
			})
		})
	}
}
