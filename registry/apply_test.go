package registry_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

type builds = map[string]registry.BuildFunc

func names(r *registry.Registry) []string {
	var all []string
	for name, p := range r.All() {
		if p.Instance() != "" {
			name += "/" + p.Instance()
		}
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
	get(t, r, "kept")

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
	require.NoError(t, r.Define("unbuilt", changed.build))
	p, q := get(t, r, "changed"), get(t, r, "removed")

	err := r.Apply(t.Context(), registry.Change{
		Define: builds{
			"changed": with(version(77)),
			"unbuilt": with(version(78)),
			"added":   with(version(79)),
			"failing": func(*registry.Builder) error { return errBoom },
		},
		Remove: []string{"removed"},
	})
	assert.ErrorIs(t, err, errBoom)
	assert.Equal(t, []string{"ReloadFailed failing"}, l.take())
	assert.Equal(t, []string{"changed", "removed"}, names(r))
	assert.Equal(t, 3, r.Definitions())
	for _, name := range []string{"added", "failing"} {
		_, err = r.Get(name)
		assert.ErrorIs(t, err, registry.ErrNotDefined)
		require.NoError(t, r.Define(name, with()))
	}
	assert.Equal(t, 1, versionOf(t, p))
	assert.Equal(t, 1, versionOf(t, q))
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 2, versionOf(t, p), "by the function that was there before")
	assert.Equal(t, 3, versionOf(t, get(t, r, "unbuilt")))
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
	get(t, r, "orders")
	require.NoError(t, r.Apply(t.Context(), registry.Change{}))
}

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
			require.NoError(t, r.Define("orders", n.build))
			p := get(t, r, "orders")
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

// A revival that fails must not lose the handle that it would have revived.
func TestApply_FailureKeepsTheRemovedHandle(t *testing.T) {
	r := open(t, nil)
	var f fickle
	require.NoError(t, r.Define("orders", f.build))
	p := get(t, r, "orders")
	eu, err := r.GetInstance("orders", "eu")
	require.NoError(t, err)
	require.NoError(t, r.Remove(t.Context(), "orders"))
	require.NoError(t, r.Define("orders", f.build))
	f.do(func(*registry.Builder) error { return errBoom })
	_, err = r.Get("orders")
	assert.ErrorIs(t, err, errBoom)
	_, err = r.GetInstance("orders", "eu")
	assert.ErrorIs(t, err, errBoom)
	f.calmDown()
	assert.Same(t, p, get(t, r, "orders"))
	again, err := r.GetInstance("orders", "eu")
	require.NoError(t, err)
	versionOf(t, again)
	assert.NotSame(t, eu, again, "other instances are gone for good")
	assert.ErrorIs(t, eu.Execute(t.Context(), nothing), registry.ErrRemoved)
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
	require.NoError(t, r.Define("outer", outer))
	p := get(t, r, "outer")
	err := r.Remove(t.Context(), "inner")
	require.EqualError(t, err, "registry: inner cannot be removed: pipeline outer contains it")
	require.Error(t, r.Apply(t.Context(), registry.Change{Define: builds{"other": outer}, Remove: []string{"inner"}}))
	require.NoError(t, p.Execute(t.Context(), nothing))
	assert.False(t, r.Defined("other"))
	require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"outer": with()}, Remove: []string{"inner"}}))
	require.NoError(t, p.Execute(t.Context(), nothing))
}

// Instances of a definition that was removed take no room.
func TestRemoveInstance_DoesNotCountAsInstance(t *testing.T) {
	r := open(t, &registry.Options{MaxInstances: 1})
	for range 3 {
		require.NoError(t, r.Define("orders", with()))
		get(t, r, "orders")
		getInstance(t, r, "orders", "eu")
		require.NoError(t, r.Remove(t.Context(), "orders"))
	}
}

// A removed definition's first build that is under way comes to nothing; so does
// one whose definition Apply has replaced.
func TestApply_DuringFirstBuild(t *testing.T) {
	for name, c := range map[string]struct {
		change registry.Change
		want   int
		err    error
	}{
		"removed":  {change: registry.Change{Remove: []string{"orders"}}, err: registry.ErrNotDefined},
		"replaced": {change: registry.Change{Define: builds{"orders": with(version(2))}}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				var j journal
				require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
					time.Sleep(time.Second)
					b.OnDispose(j.note("disposed", nil))
					b.Add(version(1))
					return nil
				}))
				for _, o := range stampede(r, 3, func() { require.NoError(t, r.Apply(t.Context(), c.change)) }) {
					if assert.ErrorIs(t, o.err, c.err); o.err == nil {
						assert.Equal(t, c.want, versionOf(t, o.p))
					}
				}
				assert.Equal(t, []string{"disposed"}, j.take())
			})
		})
	}
}

// The same for an instance that Apply does not build, because its handle has not been returned yet.
func TestApply_DuringFirstBuildOfAnotherInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			time.Sleep(time.Second)
			b.Add(version(1))
			return nil
		}))
		eu := make(chan *pipeline.Pipeline)
		go func() {
			p, err := r.GetInstance("orders", "eu")
			assert.NoError(t, err)
			eu <- p
		}()
		synctest.Wait()
		require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"orders": with(version(2))}}))
		assert.Equal(t, 2, versionOf(t, <-eu))
	})
}

// A name that is removed twice does not leave the change half applied, with the registry's lock held.
func TestRemove_SameNameTwice(t *testing.T) {
	r := open(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, r.Define(name, with()))
		get(t, r, name)
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

// What a build function does to the map and the list of its own change does not matter.
func TestApply_ChangeIsModifiedByABuild(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("old", with()))
	require.NoError(t, r.Define("kept", with()))
	c := registry.Change{Define: builds{}, Remove: []string{"old"}}
	c.Define["a"] = func(*registry.Builder) error {
		c.Remove[0] = "nowhere"
		delete(c.Define, "b")
		c.Define["kept"] = nil
		c.Define["late"] = with()
		return nil
	}
	c.Define["b"] = with()
	require.NoError(t, r.Apply(t.Context(), c))
	get(t, r, "kept")
	get(t, r, "b")
	assert.Equal(t, []string{"a", "b", "kept"}, names(r))
	assert.False(t, r.Defined("old"))
	assert.False(t, r.Defined("late"))
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

// Names that were removed take no room, unless the program has their handles: those work again when the name
// comes back.
func TestRemove_ForgetsNames(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("held", with()))
	held := get(t, r, "held")
	require.NoError(t, r.Remove(t.Context(), "held"))
	for i := range 100 {
		name := fmt.Sprint(i)
		require.NoError(t, r.Define(name, with()))
		get(t, r, name)
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
