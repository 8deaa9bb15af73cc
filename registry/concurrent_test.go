package registry_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Reloads come one after the other, and executions always find a version.
func TestReload_ConcurrentSafe(t *testing.T) {
	r := open(t, nil)
	var n numbered
	p := define(t, r, "orders", n.build)
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		wg.Go(func() {
			for last := 0; !stop.Load(); {
				v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (int, error) {
					return ctx.Value(versionKey{}).(int), nil
				})
				assert.NoError(t, err)
				assert.GreaterOrEqual(t, v, last, "never back to an older version")
				last = v
			}
		})
	}
	var reloads sync.WaitGroup
	for range 3 {
		reloads.Go(func() {
			for range 100 {
				assert.NoError(t, r.Reload(t.Context()))
			}
		})
	}
	reloads.Wait()
	stop.Store(true)
	wg.Wait()
	assert.Equal(t, 301, versionOf(t, p))
}

// Names come and go, by several ways at once. A handle that was got once works whenever its name is there, and
// in the end nothing is left.
func TestApply_NamesComeAndGoConcurrentSafe(t *testing.T) {
	r := registry.New(&registry.Options{Listener: pipeline.ListenerFunc(func(context.Context, pipeline.Event) {})})
	build := func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("shared", one(1000)), nil))
		registry.Keep(b, "kept", 1, registry.Kept[*int, int]{Kind: "thing", Make: func(int) (*int, error) { return new(int), nil }})
		if b.Name == "outer" {
			inner, err := b.Pipeline("0")
			if err != nil {
				return err
			}
			b.Add(pipeline.Embed(inner))
		}
		return nil
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 150 {
				name := fmt.Sprint((i + worker) % 3)
				p, err := r.GetOrDefine(name, build)
				if err == nil {
					_ = p.Execute(t.Context(), nothing)
				}
				_, _ = r.GetInstance(name, fmt.Sprint(worker))
				_, _ = r.GetOrDefine("outer", build)
				switch i % 4 {
				case 0:
					_ = r.Remove(t.Context(), name)
				case 1:
					_ = r.Apply(t.Context(), registry.Change{Define: builds{name: build}, Remove: []string{"outer"}})
				case 2:
					_ = r.Reload(t.Context())
				default:
					_ = r.RemoveInstance(name, fmt.Sprint(worker))
				}
			}
		})
	}
	wg.Wait()
	_ = r.Remove(t.Context(), "outer")
	held, err := r.GetOrDefine("0", build)
	require.NoError(t, err)
	require.NoError(t, r.Remove(t.Context(), "0"))
	require.ErrorIs(t, held.Execute(t.Context(), nothing), registry.ErrRemoved)
	require.NoError(t, r.Define("0", build))
	again, err := r.Get("0")
	require.NoError(t, err)
	assert.Same(t, held, again)
	require.NoError(t, held.Execute(t.Context(), nothing))
	require.NoError(t, r.Close(t.Context()))
	assert.Zero(t, r.OwnedLimiters())
}
