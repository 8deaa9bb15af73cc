package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	require.NoError(t, r.Define("outer", containing("middle", "inner")))
	outer := get(t, r, "outer")
	assert.Equal(t, 1, n.made())
	assert.Equal(t, 1, versionOf(t, outer))
	require.NoError(t, r.Reload(t.Context(), "inner"))
	assert.Equal(t, 2, versionOf(t, outer), "a handle inside is a handle")
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 3, versionOf(t, outer))
}

func TestBuilder_PipelineNotDefined(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("outer", containing("inner")))
	_, err := r.Get("outer")
	assert.ErrorIs(t, err, registry.ErrNotDefined)
	assert.ErrorContains(t, err, "inner")

	require.NoError(t, r.Define("inner", func(*registry.Builder) error { return errBoom }))
	_, err = r.Get("outer")
	assert.ErrorIs(t, err, errBoom)
}

// ring defines n pipelines, each of which contains the next.
func ring(t *testing.T, r *registry.Registry, n int, build func(next string) registry.BuildFunc) {
	t.Helper()
	for i := range n {
		require.NoError(t, r.Define(fmt.Sprint(i), build(fmt.Sprint((i+1)%n))))
	}
}

func TestBuilder_PipelineCycle(t *testing.T) {
	for n := range 4 {
		n++
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				ring(t, r, n, func(next string) registry.BuildFunc { return containing(next) })
				for i := range n {
					_, err := r.Get(fmt.Sprint(i))
					assert.ErrorIs(t, err, registry.ErrCycle)
				}
				for name := range r.All() {
					t.Errorf("%s was built", name)
				}
			})
		})
	}
}

// Every member of the ring is asked for at the same time, and each build sleeps so
// that all of them have begun before the first asks for the next.
func TestBuilder_PipelineCycleOfConcurrentFirstBuilds(t *testing.T) {
	for n := range 4 {
		n++
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				ring(t, r, n, func(next string) registry.BuildFunc {
					return func(b *registry.Builder) error {
						time.Sleep(time.Second)
						return containing(next)(b)
					}
				})
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						_, err := r.Get(fmt.Sprint(i))
						assert.ErrorIs(t, err, registry.ErrCycle)
					})
				}
				wg.Wait()
			})
		})
	}
}

func TestBuilder_PipelineCycleConcurrentSafe(t *testing.T) {
	for range 300 {
		r := registry.New(nil)
		ring(t, r, 2, func(next string) registry.BuildFunc { return containing(next) })
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				_, err := r.Get(fmt.Sprint(i % 2))
				assert.ErrorIs(t, err, registry.ErrCycle)
			})
		}
		wg.Wait()
		require.NoError(t, r.Close(t.Context()))
	}
}

// A build function may do without the pipeline that it cannot have.
func TestBuilder_PipelineCycleResolved(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("a", containing("b")))
	require.NoError(t, r.Define("b", func(b *registry.Builder) error {
		_, err := b.Pipeline("a")
		assert.ErrorIs(t, err, registry.ErrCycle)
		b.Add(version(7))
		return nil
	}))
	assert.Equal(t, 7, versionOf(t, get(t, r, "a")))
}

func TestReload_Cycle(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	back := false
	require.NoError(t, r.Define("outer", containing("inner")))
	require.NoError(t, r.Define("inner", func(b *registry.Builder) error {
		b.Add(version(3))
		if back {
			return containing("outer")(b)
		}
		return nil
	}))
	require.NoError(t, r.Define("other", with()))
	outer := get(t, r, "outer")
	get(t, r, "other")
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
	require.NoError(t, r.Define("orders", with(version(1))))
	orders := get(t, r, "orders")
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

// A rebuild may be the first to ask for a pipeline.
func TestReload_BuildsContainedPipelines(t *testing.T) {
	r := open(t, nil)
	deep := false
	require.NoError(t, r.Define("inner", with(version(9))))
	require.NoError(t, r.Define("outer", func(b *registry.Builder) error {
		if deep {
			return containing("inner")(b)
		}
		return nil
	}))
	outer := get(t, r, "outer")
	assert.Zero(t, versionOf(t, outer))
	deep = true
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 9, versionOf(t, outer))
}

// A pipeline that is removed while another one that contains it is built for the first time must not end up
// inside of one that is in force.
func TestGet_OfWhatContainsARemovedPipeline(t *testing.T) {
	remove := map[string]func(r *registry.Registry) error{
		"Remove":         func(r *registry.Registry) error { return r.Remove(context.Background(), "inner") },
		"RemoveInstance": func(r *registry.Registry) error { return r.RemoveInstance("inner", "eu") },
	}
	for name, f := range remove {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				require.NoError(t, r.Define("inner", with()))
				require.NoError(t, r.Define("outer", func(b *registry.Builder) error {
					inner, err := r.GetInstance("inner", "eu")
					if err != nil {
						return err
					}
					between, err := pipeline.New("between", pipeline.Embed(inner))
					b.Add(pipeline.Embed(between))
					time.Sleep(time.Second)
					return err
				}))
				got := make(chan error)
				go func() { _, err := r.Get("outer"); got <- err }()
				synctest.Wait()
				require.NoError(t, f(r))
				require.ErrorIs(t, <-got, registry.ErrRemoved)
			})
		})
	}
}
