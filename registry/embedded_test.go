package registry_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// containing returns a build function that embeds those pipelines.
func containing(names ...string) registry.BuildFunc {
	return func(b *registry.Builder) error {
		for _, name := range names {
			p, err := b.Pipeline(name)
			if err != nil {
				return err
			}
			b.Add(pipeline.Embed(p))
		}
		return nil
	}
}

func TestBuilder_Pipeline(t *testing.T) {
	r := open(t, nil)
	var n numbered
	require.NoError(t, r.Define("inner", n.build))
	require.NoError(t, r.Define("middle", containing("inner")))
	outer := define(t, r, "outer", containing("middle", "inner"))
	assert.Equal(t, 1, n.made())
	assert.Equal(t, 1, versionOf(t, outer))
	require.NoError(t, r.Reload(t.Context(), "inner"))
	assert.Equal(t, 2, versionOf(t, outer), "a handle inside is a handle")
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 3, versionOf(t, outer))
}

func TestBuilder_PipelineNotInForce(t *testing.T) {
	r := open(t, nil)
	assert.ErrorIs(t, r.Define("outer", containing("inner")), registry.ErrNotDefined)
	assert.ErrorIs(t, r.Define("outer", containing("outer")), registry.ErrCycle)
	require.NoError(t, r.Define("inner", with()))
	require.NoError(t, r.Define("outer", containing("inner")))
	assert.False(t, r.InUse("inner"))
}

// A change builds a pipeline after the pipelines that it contains, and each once.
func TestApply_DependencyOrder(t *testing.T) {
	r := open(t, nil)
	var j journal
	noting := func(inside ...string) registry.BuildFunc {
		return func(b *registry.Builder) error {
			defer j.add("%s", b.Name)
			return containing(inside...)(b)
		}
	}
	define := builds{"a": noting("c", "b"), "b": noting("d"), "c": noting("d"), "d": noting()}
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: define}))
	assert.Equal(t, []string{"d", "c", "b", "a"}, j.take())
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, []string{"d", "c", "b", "a"}, j.take())

	define["d"] = failing["error"]
	require.ErrorIs(t, r.Apply(t.Context(), registry.Change{Define: define}), errBoom)
	assert.Equal(t, []string{"c", "b", "a"}, j.take(), "all of them, to report all failures")
}

func TestReload_Cycle(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	back := false
	require.NoError(t, r.Define("inner", func(b *registry.Builder) error {
		b.Add(version(3))
		if back {
			return containing("outer")(b)
		}
		return nil
	}))
	require.NoError(t, r.Define("other", with()))
	outer := define(t, r, "outer", containing("inner"))
	back = true
	assert.ErrorIs(t, r.Reload(t.Context(), "inner", "other"), registry.ErrCycle)
	assert.Equal(t, []string{"ReloadFailed inner"}, l.take(), "other is not at fault")
	assert.Equal(t, 3, versionOf(t, outer))
	back = false
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 3, versionOf(t, outer))
}

// The way round may lead through a pipeline that is not the registry's.
func TestReload_CycleThroughAPipelineOfTheProgram(t *testing.T) {
	r := open(t, nil)
	orders := define(t, r, "orders", with(version(1)))
	outsider := weir.Must(pipeline.New("outsider", pipeline.Embed(orders)))
	err := r.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{
		"orders": with(version(2), pipeline.Embed(outsider)),
	}})
	assert.ErrorIs(t, err, registry.ErrCycle)
	assert.Equal(t, 1, versionOf(t, outsider))
}

func TestApply_Cycle(t *testing.T) {
	r := open(t, nil)
	for n := range 3 {
		define := make(map[string]registry.BuildFunc)
		for i := range n + 1 {
			define[fmt.Sprint(i)] = containing(fmt.Sprint((i + 1) % (n + 1)))
		}
		assert.ErrorIs(t, r.Apply(t.Context(), registry.Change{Define: define}), registry.ErrCycle)
		assert.Zero(t, r.Definitions(), "the definitions are as they were")
	}
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: map[string]registry.BuildFunc{
		"outer": containing("inner"), "inner": with(version(4)),
	}}))
	assert.Equal(t, 4, versionOf(t, get(t, r, "outer")))
}

// A pipeline that is removed while another one that contains it is built for the first time must not end up
// inside of one that is in force.
func TestDefine_OfWhatContainsARemovedPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		require.NoError(t, r.Define("inner", with()))
		inner := getInstance(t, r, "inner", "eu")
		got := make(chan error)
		go func() {
			got <- r.Define("outer", slow(with(pipeline.Embed(weir.Must(pipeline.New("between", pipeline.Embed(inner)))))))
		}()
		synctest.Wait()
		require.NoError(t, r.RemoveInstance("inner", "eu"))
		require.ErrorIs(t, <-got, registry.ErrRemoved)
	})
}

// A container is a strategy of the program with a pipeline inside.
type container struct {
	version

	f func() *pipeline.Pipeline
}

func (c container) Pipeline() *pipeline.Pipeline { return c.f() }

func TestApply_StrategiesAreAskedWithoutALock(t *testing.T) {
	r := open(t, nil)
	inner := define(t, r, "inner", with())
	asked := container{1, func() *pipeline.Pipeline {
		assert.False(t, r.IsLocked())
		return inner
	}}
	between := weir.Must(pipeline.New("between", asked))
	require.NoError(t, r.Define("outer", with(pipeline.Embed(between))))
	require.NoError(t, r.Reload(t.Context()))
	require.Error(t, r.Remove(t.Context(), "inner"))
	require.NoError(t, r.Remove(t.Context(), "inner", "outer"))
}
