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
