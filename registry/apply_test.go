package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

type builds = map[string]registry.BuildFunc

func names(r *registry.Registry) []string {
	var all []string
	for name := range r.Pipelines() {
		all = append(all, name)
	}
	return all
}

func TestApply(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	var kept, changed, added numbered
	require.NoError(t, r.Define("kept", kept.build))
	require.NoError(t, r.Define("changed", changed.build))
	require.NoError(t, r.Define("removed", with()))
	p, removed := get(t, r, "changed"), get(t, r, "removed")

	require.NoError(t, r.Apply(t.Context(), registry.Change{
		Define: builds{"changed": with(version(77)), "added": added.build},
		Remove: []string{"removed"},
	}))
	assert.Equal(t, []string{"added", "changed", "kept"}, names(r))
	assert.Equal(t, 1, kept.made(), "what is not named is left alone")
	assert.Equal(t, 1, added.made(), "what is defined is built")
	assert.Equal(t, 77, versionOf(t, p))
	err := removed.Execute(t.Context(), nothing)
	assert.ErrorIs(t, err, registry.ErrRemoved)
	assert.ErrorIs(t, err, pipeline.ErrClosed)
	_, err = r.Get("removed")
	assert.ErrorIs(t, err, registry.ErrNotDefined)
	assert.ErrorIs(t, r.Reload(t.Context(), "removed"), registry.ErrNotDefined)
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 1, changed.made(), "the new function is used from now on")
}

func TestApply_FailureChangesNothing(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	var changed, removed numbered
	require.NoError(t, r.Define("changed", changed.build))
	require.NoError(t, r.Define("removed", removed.build))
	p, q := get(t, r, "changed"), get(t, r, "removed")

	err := r.Apply(t.Context(), registry.Change{
		Define: builds{
			"changed": with(version(77)),
			"added":   with(version(79)),
			"failing": func(*registry.Builder) error { return errBoom },
		},
		Remove: []string{"removed"},
	})
	assert.ErrorIs(t, err, errBoom)
	assert.Equal(t, []string{"ReloadFailed failing"}, l.take())
	assert.Equal(t, []string{"changed", "removed"}, names(r))
	assert.Equal(t, 2, r.Definitions())
	for _, name := range []string{"added", "failing"} {
		_, err = r.Get(name)
		assert.ErrorIs(t, err, registry.ErrNotDefined)
		require.NoError(t, r.Define(name, with()))
	}
	assert.Equal(t, 1, versionOf(t, p))
	assert.Equal(t, 1, versionOf(t, q))
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 2, versionOf(t, p), "by the function that was there before")
}

func TestApply_InvalidChange(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("orders", with()))
	for what, c := range map[string]registry.Change{
		"empty name":     {Define: builds{"": with()}},
		"nil function":   {Define: builds{"a": nil}},
		"both":           {Define: builds{"orders": with()}, Remove: []string{"orders"}},
		"unknown":        {Remove: []string{"a"}},
		"not known, too": {Define: builds{"b": with()}, Remove: []string{"orders", "a"}},
	} {
		assert.Error(t, r.Apply(t.Context(), c), what)
	}
	assert.Equal(t, 1, r.Definitions())
	require.NoError(t, r.Apply(t.Context(), registry.Change{}))
}

// A revival that fails must not lose the handle that it would have revived.
func TestApply_FailureKeepsTheRemovedHandle(t *testing.T) {
	r := open(t, nil)
	var f fickle
	p := define(t, r, "orders", f.build)
	eu, err := r.GetInstance("orders", "eu")
	require.NoError(t, err)
	require.NoError(t, r.Remove(t.Context(), "orders"))
	f.do(failing["error"])
	assert.ErrorIs(t, r.Define("orders", f.build), errBoom)
	assert.ErrorIs(t, r.Apply(t.Context(), registry.Change{Define: builds{"orders": f.build}}), errBoom)
	f.calmDown()
	assert.Same(t, p, define(t, r, "orders", f.build))
	again, err := r.GetInstance("orders", "eu")
	require.NoError(t, err)
	versionOf(t, again)
	assert.NotSame(t, eu, again, "other instances are gone for good")
	assert.ErrorIs(t, eu.Execute(t.Context(), nothing), registry.ErrRemoved)
}

// A reload that takes away what the program has got is reported.
func TestApply_RemovesWhatTheProgramHasGot(t *testing.T) {
	var lost []string
	r := open(t, &registry.Options{Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
		if e.Name == registry.EventRemoved {
			assert.Equal(t, pipeline.SeverityWarning, e.Severity)
			assert.ErrorIs(t, e.Err, registry.ErrRemoved)
			lost = append(lost, e.Source.Pipeline+"/"+e.Source.Instance)
		}
	})})
	define := registry.Change{Define: builds{"got": with(), "not": with(), "inside": with(), "instances": with()}}
	define.Define["outer"] = func(b *registry.Builder) error { _, err := b.Pipeline("inside"); return err }
	require.NoError(t, r.Apply(t.Context(), define))
	get(t, r, "got")
	getInstance(t, r, "instances", "eu")
	assert.True(t, r.InUse("got"))
	assert.True(t, r.InUse("instances"))
	for _, name := range []string{"not", "inside", "unknown"} {
		assert.False(t, r.InUse(name), name)
	}
	require.NoError(t, r.Apply(t.Context(), registry.Change{Remove: []string{"got", "not", "inside", "instances"}}))
	assert.ElementsMatch(t, []string{"got/", "instances/eu"}, lost)
	lost = nil
	require.NoError(t, r.Define("got", with()))
	require.NoError(t, r.Remove(t.Context(), "got"))
	assert.Empty(t, lost, "the program has asked for it")
}

// An execution that begins while a change comes into force finds every pipeline that the new version uses.
func TestRegistry_ApplyNewPipelineFirstConcurrentSafe(t *testing.T) {
	r := registry.New(nil)
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	change := func(version int) registry.Change {
		inner := fmt.Sprintf("inner-%d", version) // by its name it would come after the outer one
		return registry.Change{Define: map[string]registry.BuildFunc{
			inner: func(*registry.Builder) error { return nil },
			"a-outer": func(b *registry.Builder) error {
				p, err := b.Pipeline(inner)
				b.Add(pipeline.Embed(p))
				return err
			},
		}}
	}
	require.NoError(t, r.Apply(t.Context(), change(0)))
	outer, err := r.Get("a-outer")
	require.NoError(t, err)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := outer.Execute(t.Context(), func(context.Context) error { return nil }); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for version := 1; version <= 300; version++ {
		require.NoError(t, r.Apply(t.Context(), change(version)))
	}
	close(stop)
	running.Wait()
}
