package registry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// A build function that goes round the Builder gets an error, and does not hang.
func TestGet_OnTheGoroutineOfItsBuild(t *testing.T) {
	r := open(t, nil)
	asking := func(name string) registry.BuildFunc {
		return func(b *registry.Builder) error {
			p, err := r.Get(name)
			if err == nil {
				b.Add(pipeline.Embed(p))
			}
			return err
		}
	}
	require.NoError(t, r.Define("itself", asking("itself")))
	require.NoError(t, r.Define("a", asking("b")))
	require.NoError(t, r.Define("b", asking("c")))
	require.NoError(t, r.Define("c", asking("a")))
	require.NoError(t, r.Define("outer", asking("inner")))
	require.NoError(t, r.Define("inner", with()))
	for _, name := range []string{"itself", "a", "b", "c"} {
		_, err := r.Get(name)
		require.ErrorIs(t, err, registry.ErrCycle, name)
	}
	require.NoError(t, get(t, r, "outer").Execute(t.Context(), nothing))
	_, err := r.Get("a")
	require.ErrorIs(t, err, registry.ErrCycle, "nothing is left of the first time")
}

func TestReload_OnTheGoroutineOfAReload(t *testing.T) {
	var r *registry.Registry
	var heard error
	r = open(t, &registry.Options{Listener: pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
		if e.Name == registry.EventReload {
			heard = r.Reload(ctx)
		}
	})})
	var built error
	first := true
	require.NoError(t, r.Define("orders", func(*registry.Builder) error {
		if !first {
			built = r.Reload(context.Background())
		}
		first = false
		return nil
	}))
	get(t, r, "orders")
	require.NoError(t, r.Reload(t.Context()))
	require.ErrorIs(t, built, registry.ErrReloading)
	require.ErrorIs(t, heard, registry.ErrReloading)
	require.NoError(t, r.Reload(t.Context()), "the next one is none the worse for it")
}
