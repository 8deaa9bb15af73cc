package registry_test

import (
	"fmt"
	"sync/atomic"
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

// PR02: a hundred instances of one definition.
func TestGetInstance(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	var n numbered
	require.NoError(t, r.Define("orders", n.build))
	handles := make(map[*pipeline.Pipeline]bool)
	for range 3 {
		for i := range 100 {
			p := getInstance(t, r, "orders", fmt.Sprint(i))
			assert.Equal(t, "orders", p.Name())
			assert.Equal(t, fmt.Sprint(i), p.Instance())
			handles[p] = true
		}
	}
	assert.Len(t, handles, 100)
	assert.False(t, handles[get(t, r, "orders")])
	assert.Same(t, get(t, r, "orders"), getInstance(t, r, "orders", ""))
	assert.Equal(t, 101, n.made())

	require.NoError(t, r.Reload(t.Context(), "orders"))
	assert.Equal(t, 202, n.made(), "all of them")
	for p := range handles {
		assert.Greater(t, versionOf(t, p), 101)
	}
	assert.Len(t, l.take(), 101)
}

func TestPipelines_Order(t *testing.T) {
	r := open(t, nil)
	for _, name := range []string{"b", "a", "c"} {
		require.NoError(t, r.Define(name, with()))
	}
	assert.Equal(t, []string{"a", "b", "c"}, names(r))
	require.NoError(t, r.Remove(t.Context(), "c"))
	for _, id := range [][2]string{{"b", "z"}, {"b", ""}, {"a", "y"}, {"b", "x"}} {
		getInstance(t, r, id[0], id[1])
	}
	assert.Equal(t, []string{"a", "a/y", "b", "b/x", "b/z"}, names(r))
	for _, info := range r.Pipelines() {
		assert.Same(t, getInstance(t, r, info.Name, info.Instance), info.Pipeline)
		if info.Instance != "" {
			require.NoError(t, r.RemoveInstance(info.Name, info.Instance), "the registry is not locked meanwhile")
			continue
		}
		require.EqualError(t, r.RemoveInstance(info.Name, ""), "registry: "+info.Name+" is what Get returns: remove the pipeline instead")
	}
	assert.Equal(t, []string{"a", "b"}, names(r))
	for range r.Limiters() {
		t.Error("there is no limiter")
	}
}

func TestRemoveInstance(t *testing.T) {
	r := open(t, nil)
	var n numbered
	require.NoError(t, r.Define("orders", n.build))
	require.NoError(t, r.RemoveInstance("orders", "eu"), "there is none")
	require.NoError(t, r.RemoveInstance("payments", "eu"))
	usual, us := get(t, r, "orders"), getInstance(t, r, "orders", "us")
	old := getInstance(t, r, "orders", "eu")
	end := hold(t, old)
	require.NoError(t, r.RemoveInstance("orders", "eu"))
	err := old.Execute(t.Context(), nothing)
	assert.ErrorIs(t, err, registry.ErrRemoved)
	assert.ErrorIs(t, err, pipeline.ErrClosed)
	assert.Equal(t, []string{"orders", "orders/us"}, names(r))

	fresh := getInstance(t, r, "orders", "eu")
	assert.NotSame(t, old, fresh)
	assert.Equal(t, 4, versionOf(t, fresh))
	require.NoError(t, r.Reload(t.Context()))
	assert.ErrorIs(t, old.Execute(t.Context(), nothing), registry.ErrRemoved, "it does not come back")
	assert.Equal(t, "began on 3, ended on 3", end())
	for _, p := range []*pipeline.Pipeline{usual, us, fresh} {
		assert.Greater(t, versionOf(t, p), 4)
	}
}

func TestRemoveInstance_DuringFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var j journal
		var builds atomic.Int64
		require.NoError(t, r.Define("orders", forEU(func(b *registry.Builder) error {
			if builds.Add(1) == 1 {
				time.Sleep(time.Second)
			}
			return noted(&j)(b)
		})))
		done := make(chan error)
		go func() {
			_, err := r.GetInstance("orders", "eu")
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, r.RemoveInstance("orders", "eu"))
		assert.Equal(t, "eu", getInstance(t, r, "orders", "eu").Instance(), "a new one need not wait for it")
		assert.ErrorIs(t, <-done, registry.ErrRemoved)
		assert.Equal(t, order, j.take())
		assert.Equal(t, []string{"orders", "orders/eu"}, names(r))
	})
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

func TestOptions_MaxInstances(t *testing.T) {
	r := open(t, &registry.Options{MaxInstances: 2})
	var f fickle
	require.NoError(t, r.Define("orders", f.build))
	require.NoError(t, r.Define("payments", f.build))
	f.do(func(*registry.Builder) error { return errBoom })
	for i := range 10 {
		_, err := r.GetInstance("orders", fmt.Sprint(i))
		assert.ErrorIs(t, err, errBoom, "what fails takes no room")
	}
	f.calmDown()
	getInstance(t, r, "orders", "eu")
	getInstance(t, r, "orders", "us")
	_, err := r.GetInstance("orders", "ap")
	assert.ErrorIs(t, err, registry.ErrTooManyInstances)
	assert.ErrorContains(t, err, "orders")
	getInstance(t, r, "payments", "ap")
	require.NoError(t, r.RemoveInstance("orders", "eu"))
	getInstance(t, r, "orders", "ap")
	_, err = r.GetInstance("orders", "eu")
	assert.ErrorIs(t, err, registry.ErrTooManyInstances)
}

func TestOptions_MaxInstancesDefault(t *testing.T) {
	for most, want := range map[int]int{0: 1000, -1: 1100} {
		r := open(t, &registry.Options{MaxInstances: most})
		require.NoError(t, r.Define("orders", with()))
		made := 0
		for i := range 1100 {
			if _, err := r.GetInstance("orders", fmt.Sprint("i", i)); err == nil {
				made++
			} else {
				require.ErrorIs(t, err, registry.ErrTooManyInstances)
			}
		}
		assert.Equal(t, want, made)
	}
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
