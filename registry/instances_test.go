package registry_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

func getInstance(t *testing.T, r *registry.Registry, name, instance string) *pipeline.Pipeline {
	t.Helper()
	p, err := r.GetInstance(name, instance)
	require.NoError(t, err)
	return p
}

// An instance that is removed while a reload builds it stays removed.
func TestRemoveInstance_DuringReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l recorder
		r := open(t, &registry.Options{Listener: &l})
		var n numbered
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			if n.made() >= 3 {
				time.Sleep(time.Second)
			}
			return n.build(b)
		}))
		eu, us := getInstance(t, r, "orders", "eu"), getInstance(t, r, "orders", "us")
		done := make(chan error)
		go func() { done <- r.Reload(t.Context()) }()
		synctest.Wait()
		require.NoError(t, r.RemoveInstance("orders", "eu"))
		require.NoError(t, <-done)
		assert.ErrorIs(t, eu.Execute(t.Context(), nothing), registry.ErrRemoved)
		assert.Equal(t, 6, versionOf(t, us))
		assert.Equal(t, []string{"orders", "orders/us"}, names(r))
		synctest.Wait()
		assert.ElementsMatch(t, []string{"Forget orders/eu", "OnReload orders", "OnReload orders/us"}, l.take())
	})
}

func TestRemoveInstance_ContainedPipeline(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("inner", with()))
	eu := getInstance(t, r, "inner", "eu")
	p := define(t, r, "outer", with(pipeline.Embed(eu)))
	require.EqualError(t, r.RemoveInstance("inner", "eu"), "registry: inner/eu cannot be removed: pipeline outer contains it")
	require.NoError(t, p.Execute(t.Context(), nothing))
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"outer": with()}}))
	require.NoError(t, r.RemoveInstance("inner", "eu"))
}

func TestOptions_MaxInstances(t *testing.T) {
	for most, want := range map[int]int{0: 1000, -1: 1100, 2: 2} {
		r := open(t, &registry.Options{MaxInstances: most})
		var f fickle
		require.NoError(t, r.Define("orders", f.build))
		f.do(failing["error"])
		_, err := r.GetInstance("orders", "fails")
		require.ErrorIs(t, err, errBoom, "it takes no room")
		f.calmDown()
		made := 0
		for i := range 1100 {
			if _, err := r.GetInstance("orders", fmt.Sprint("i", i)); err == nil {
				made++
			} else {
				require.ErrorIs(t, err, registry.ErrTooManyInstances)
			}
		}
		assert.Equal(t, want, made)
		require.NoError(t, r.RemoveInstance("orders", "i0"))
		getInstance(t, r, "orders", "i1100")
	}
}

// An instance that is removed during its first build is not made, and can be made again.
func TestRemoveInstance_DuringFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var j journal
		require.NoError(t, r.Define("orders", forEU(slow(noted(&j)))))
		for _, o := range stampede(r, 3, func() { require.NoError(t, r.RemoveInstance("orders", "eu")) }) {
			assert.ErrorIs(t, o.err, registry.ErrRemoved)
		}
		assert.Equal(t, order, j.take())
		getInstance(t, r, "orders", "eu")
		assert.Equal(t, []string{"orders", "orders/eu"}, names(r))
	})
}

// What is about to come into force was checked with the instance in it.
func TestRemoveInstance_WaitsForAReconfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		options := 1
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			registry.Keep(b, "k", options, registry.Kept[*int, int]{
				Kind: "number", Make: func(n int) (*int, error) { return &n, nil },
				Reconfigure: func(*int, int) error { time.Sleep(time.Second); return nil },
			})
			return nil
		}))
		eu := getInstance(t, r, "orders", "eu")
		options = 2
		reloaded := make(chan error)
		go func() { reloaded <- r.Reload(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, r.RemoveInstance("orders", "eu"))
		assert.Equal(t, time.Second, time.Since(began))
		require.NoError(t, <-reloaded)
		assert.ErrorIs(t, eu.Execute(t.Context(), nothing), registry.ErrRemoved)
	})
}
