package registry_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

func TestRemove(t *testing.T) {
	r := open(t, nil)
	var n numbered
	require.NoError(t, r.Define("a", n.build))
	require.NoError(t, r.Define("b", n.build))
	p := get(t, r, "a")
	err := r.Remove(t.Context(), "a", "c")
	assert.ErrorIs(t, err, registry.ErrNotDefined)
	assert.Equal(t, 1, versionOf(t, p), "then nothing is removed")

	end := hold(t, p)
	require.NoError(t, r.Remove(t.Context(), "a", "b"))
	assert.False(t, r.Defined("a"))
	assert.ErrorIs(t, p.Execute(t.Context(), nothing), registry.ErrRemoved)
	assert.Equal(t, "began on 1, ended on 1", end(), "what runs goes on to its end")
	assert.Equal(t, "a", p.Name())
}

// What another pipeline contains cannot be taken from under it.
func TestRemove_ContainedPipeline(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("inner", with()))
	outer := func(b *registry.Builder) error {
		inner, err := b.Pipeline("inner")
		b.Add(pipeline.Embed(weir.Must(pipeline.New("between", pipeline.Embed(inner)))))
		return err
	}
	p := define(t, r, "outer", outer)
	err := r.Remove(t.Context(), "inner")
	require.EqualError(t, err, "registry: inner cannot be removed: pipeline outer contains it")
	require.Error(t, r.Apply(t.Context(), registry.Change{Define: builds{"other": outer}, Remove: []string{"inner"}}))
	require.NoError(t, p.Execute(t.Context(), nothing))
	assert.False(t, r.Defined("other"))
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"outer": with()}, Remove: []string{"inner"}}))
	require.NoError(t, p.Execute(t.Context(), nothing))
}

// A name that is removed twice does not leave the change half applied, with the registry's lock held.
func TestRemove_SameNameTwice(t *testing.T) {
	r := open(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, r.Define(name, with()))
	}
	require.NoError(t, r.Remove(t.Context(), "a", "b", "a"))
	assert.Equal(t, []string{"c"}, names(r))
	require.NoError(t, r.Apply(t.Context(), registry.Change{
		Define: builds{"d": with()},
		Remove: []string{"c", "c"},
	}))
	assert.Equal(t, []string{"d"}, names(r))
	require.ErrorIs(t, r.Remove(t.Context(), "d", "x", "d"), registry.ErrNotDefined)
	assert.Equal(t, []string{"d"}, names(r))
}

// Names that were removed take no room, unless the program has their handles: those work again when the name
// comes back.
func TestRemove_ForgetsNames(t *testing.T) {
	r := open(t, nil)
	held := define(t, r, "held", with())
	require.NoError(t, r.Remove(t.Context(), "held"))
	for i := range 100 {
		name := fmt.Sprint(i)
		require.NoError(t, r.Define(name, with()))
		require.NoError(t, r.Remove(t.Context(), name))
	}
	assert.Zero(t, r.Definitions())
	require.Eventually(t, func() bool {
		runtime.GC()
		return r.RemovedHandles() == 1
	}, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, held.Execute(t.Context(), nothing), registry.ErrRemoved)
	var n numbered
	require.NoError(t, r.Define("held", n.build))
	assert.Same(t, held, get(t, r, "held"))
	assert.Equal(t, 1, versionOf(t, held))
	assert.Zero(t, r.RemovedHandles())
}

func TestDefine_AgainRestoresTheHandle(t *testing.T) {
	revive := map[string]func(r *registry.Registry, f registry.BuildFunc) error{
		"Define": func(r *registry.Registry, f registry.BuildFunc) error {
			if err := r.Define("orders", f); err != nil {
				return err
			}
			_, err := r.Get("orders")
			return err
		},
		"Apply": func(r *registry.Registry, f registry.BuildFunc) error {
			return r.Apply(t.Context(), registry.Change{Define: builds{"orders": f}})
		},
	}
	for name, f := range revive {
		t.Run(name, func(t *testing.T) {
			r := open(t, nil)
			var n numbered
			p := define(t, r, "orders", n.build)
			for i := range 3 {
				require.NoError(t, r.Remove(t.Context(), "orders"))
				assert.ErrorIs(t, p.Execute(t.Context(), nothing), registry.ErrRemoved)
				require.NoError(t, f(r, n.build))
				assert.Equal(t, i+2, versionOf(t, p))
				assert.Same(t, p, get(t, r, "orders"))
			}
		})
	}
}

// A Get that overlaps a removal returns no handle that the next definition leaves without a version.
func TestGet_OverlapsRemove(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("orders", with()))
	p, err := r.GetDuring("orders", func() {
		require.NoError(t, r.Remove(t.Context(), "orders"))
		require.NoError(t, r.Define("orders", with()))
	})
	require.NoError(t, err)
	require.NoError(t, p.Execute(t.Context(), nothing))
	assert.True(t, r.InUse("orders"))
}
