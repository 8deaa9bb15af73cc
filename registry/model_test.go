package registry_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// Random calls: after each, everything that can be seen of the registry is what its documentation says.
func TestRegistry_RandomCalls(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed)
				for range 150 {
					w.call()
					w.check()
				}
				w.close()
			})
		})
	}
}

// A world is a registry and what must be true of it. Its pipelines are a, b and c, each with the instance eu, and all of them use
// the token bucket "l".
type world struct {
	*testing.T
	*rand.Rand

	r        *registry.Registry
	heard    journal
	expected []string // what is to be heard because of the last call
	did      string

	limit   int                           // what builds read
	failing map[string]registry.BuildFunc // the names whose builds fail, all with "boom"

	builds  []*build
	live    map[string]*build             // in force, by name or name/instance
	handles map[string]*pipeline.Pipeline // what the program has; it works whenever there is a live one
	dead    []*pipeline.Pipeline          // handles that never work again
	running []execution
	removed map[string]bool // to be forgotten when no execution runs any more

	l        *limiter.TokenBucket
	taken    int
	override int // its limit; 0: none
	until    time.Time
}

type build struct {
	id                      string
	number, limit, disposed int
	own                     limiter.Limiter
}

type execution struct {
	of  *build
	end func() string
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		T: t, Rand: rand.New(rand.NewPCG(seed, 0)), limit: 10,
		live: make(map[string]*build), handles: make(map[string]*pipeline.Pipeline), removed: make(map[string]bool),
	}
	w.r = registry.New(&registry.Options{Listener: w, DrainTimeout: -1})
	return w
}

func (w *world) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: func(_ context.Context, e pipeline.Event) {
			switch o, overrides := e.Result.(registry.Override); {
			case overrides:
				w.heard.add("%s %s", e.Name, o.Ended)
			case e.Name == registry.EventRemoved:
				assert.Equal(w, pipeline.SeverityWarning, e.Severity)
				assert.ErrorIs(w, e.Err, registry.ErrRemoved)
				w.heard.add("%s %s", e.Name, e.Source)
			case e.Name == registry.EventReload, e.Name == registry.EventReloadFailed, e.Name == registry.EventDisposeFailed:
				w.heard.add("%s %s", e.Name, e.Source)
			}
		},
		Forget: func(s pipeline.Source) { w.heard.add("Forget %s", s) },
	}
}

func (w *world) expect(format string, args ...any) {
	w.expected = append(w.expected, fmt.Sprintf(format, args...))
}

func (w *world) build(b *registry.Builder) error {
	n := &build{id: pipeline.Source{Pipeline: b.Name, Instance: b.Instance}.String(), number: len(w.builds), limit: w.limit}
	w.builds = append(w.builds, n)
	b.OnDispose(func() error { n.disposed++; return nil })
	b.Add(version(n.number))
	w.l = b.TokenBucket("l", bucketOptions(n.limit))
	n.own = b.Concurrency(fmt.Sprint("of build ", n.number), one(1))
	if f := w.failing[b.Name]; f != nil {
		return f(b)
	}
	return nil
}

// some returns some of the names.
func (w *world) some() []string {
	return slices.DeleteFunc([]string{"a", "b", "c"}, func(string) bool { return w.IntN(2) == 0 })
}

// instances returns what is in force of those pipelines, sorted.
func (w *world) instances(names ...string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(w.live)), func(id string) bool { return !slices.Contains(names, id[:1]) })
}

func (w *world) undefined(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return w.live[name] == nil })
}

func (w *world) call() {
	w.failing = make(builds)
	for _, name := range w.some() {
		if ways := slices.Sorted(maps.Keys(failing)); w.IntN(4) == 0 {
			w.failing[name] = failing[ways[w.IntN(len(ways))]]
		}
	}
	if w.IntN(4) == 0 {
		w.limit = 1 + w.IntN(20)
	}
	ctx, name, names := w.Context(), string("abc"[w.IntN(3)]), w.some()
	eu := name + "/eu"
	switch w.IntN(12) {
	case 0:
		w.did = "Define " + name
		if w.live[name] != nil {
			require.ErrorIs(w, w.r.Define(name, w.build), registry.ErrDefined)
			return
		}
		w.change([]string{name}, nil, false, func() error { return w.r.Define(name, w.build) })
	case 1:
		w.get(name, "")
	case 2:
		w.get(name, "eu")
	case 3:
		w.did = fmt.Sprint("Reload ", names)
		switch {
		case len(names) == 0:
			w.change(w.instances("a", "b", "c"), nil, true, func() error { return w.r.Reload(ctx) })
		case w.undefined(names):
			require.ErrorIs(w, w.r.Reload(ctx, names...), registry.ErrNotDefined, w.did)
		default:
			w.change(w.instances(names...), nil, true, func() error { return w.r.Reload(ctx, append(names, names[0])...) })
		}
	case 4, 5:
		w.apply(names, slices.DeleteFunc(w.some(), func(name string) bool { return slices.Contains(names, name) }))
	case 6:
		w.did = fmt.Sprint("Remove ", names)
		if w.undefined(names) {
			require.ErrorIs(w, w.r.Remove(ctx, names...), registry.ErrNotDefined, w.did)
			return
		}
		w.change(nil, w.instances(names...), false, func() error { return w.r.Remove(ctx, append(names, names...)...) })
	case 7:
		w.did = "RemoveInstance " + eu
		require.NoError(w, w.r.RemoveInstance(name, "eu"))
		if w.live[name] != nil {
			require.EqualError(w, w.r.RemoveInstance(name, ""), "registry: "+name+" is what Get returns: remove the pipeline instead")
		}
		w.remove(w.instances(name), eu, false)
	case 8:
		w.did = "execute " + name
		if p := w.handles[name]; p != nil && w.live[name] != nil {
			w.running = append(w.running, execution{w.live[name], hold(w.T, p)})
		}
	case 9:
		w.did = "end an execution"
		if n := len(w.running); n > 0 {
			w.end(w.IntN(n))
		}
	case 10:
		w.did = "take"
		if len(w.live) > 0 && available(w.l) > 0 {
			take(w.T, w.l, 1)
			w.taken++
		}
		time.Sleep(time.Duration(w.IntN(3)) * time.Millisecond)
	default:
		w.changeOverride()
	}
}

func (w *world) end(i int) {
	e := w.running[i]
	assert.Equal(w, fmt.Sprintf("began on %d, ended on %[1]d", e.of.number), e.end(), w.did)
	w.running = slices.Delete(w.running, i, i+1)
}

func (w *world) get(name, instance string) {
	id := pipeline.Source{Pipeline: name, Instance: instance}.String()
	w.did = "Get " + id
	var p *pipeline.Pipeline
	get := func() (err error) { p, err = w.r.GetInstance(name, instance); return err }
	switch {
	case w.live[name] == nil:
		require.ErrorIs(w, get(), registry.ErrNotDefined, w.did)
		return
	case w.live[id] != nil:
		require.NoError(w, get(), w.did)
	case !w.change([]string{id}, nil, false, get):
		return
	}
	if known := w.handles[id]; known != nil {
		assert.Same(w, known, p, w.did)
	}
	w.handles[id] = p
	assert.NotContains(w, w.dead, p, w.did)
}

func (w *world) apply(define, remove []string) {
	w.did = fmt.Sprint("Apply ", define, remove)
	c := registry.Change{Define: make(builds), Remove: append(remove, remove...)}
	var ids []string
	for _, name := range define {
		c.Define[name] = w.build
		if ids = append(ids, w.instances(name)...); w.live[name] == nil {
			ids = append(ids, name)
		}
	}
	if w.undefined(remove) {
		require.ErrorIs(w, w.r.Apply(w.Context(), c), registry.ErrNotDefined, w.did)
		return
	}
	w.change(ids, w.instances(remove...), true, func() error { return w.r.Apply(w.Context(), c) })
}

// change does f, which builds the instances, puts them in force and removes others: all or nothing. It reports whether f has
// succeeded. If told, the Listener hears of it.
func (w *world) change(instances, remove []string, told bool, f func() error) bool {
	begun := len(w.builds)
	err := f()
	var built, failed []string
	for _, n := range w.builds[begun:] {
		built = append(built, n.id)
		if w.failing[n.id[:1]] != nil {
			failed = append(failed, "ReloadFailed "+n.id)
		}
	}
	assert.Equal(w, fmt.Sprint(instances), fmt.Sprint(built), w.did)
	conflict := false
	for id, n := range w.live {
		conflict = conflict || len(built) > 0 && n.limit != w.limit && !slices.Contains(built, id) && !slices.Contains(remove, id)
	}
	switch {
	case len(failed) > 0:
		require.ErrorContains(w, err, "boom", w.did)
		for _, event := range failed {
			assert.ErrorContains(w, err, "pipeline "+strings.TrimPrefix(event, "ReloadFailed ")+": ", w.did)
		}
	case conflict:
		require.ErrorIs(w, err, registry.ErrLimiterConflict, w.did)
		failed = []string{"ReloadFailed " + built[0]}
	default:
		require.NoError(w, err, w.did)
		for _, n := range w.builds[begun:] {
			w.live[n.id] = n
			delete(w.removed, n.id)
			failed = append(failed, "OnReload "+n.id)
		}
		for _, id := range remove {
			w.remove(remove, id, told)
		}
	}
	if told {
		w.expected = append(w.expected, failed...)
	}
	return err == nil
}

// remove removes id if it is among the instances.
func (w *world) remove(among []string, id string, told bool) {
	if !slices.Contains(among, id) {
		return
	}
	delete(w.live, id)
	w.removed[id] = true
	p := w.handles[id]
	if p != nil && told {
		w.expect("OnPipelineRemoved %s", id)
	}
	if p != nil && p.Instance() != "" {
		w.dead = append(w.dead, p)
		delete(w.handles, id)
	}
}

func (w *world) changeOverride() {
	ctx := w.Context()
	if w.IntN(2) == 0 {
		w.did = "Override"
		limit := 1 + w.IntN(20)
		o := for1h(bucketOptions(limit))
		o.Until = time.Now().Add(5 * time.Millisecond)
		err := w.r.Override(ctx, o)
		if len(w.live) == 0 {
			require.ErrorIs(w, err, registry.ErrNoLimiter)
			return
		}
		require.NoError(w, err)
		w.endOverride("replaced by ann")
		w.expect("OnLimiterOverridden ")
		w.override, w.until = limit, o.Until
		return
	}
	w.did = "EndOverride"
	switch err := w.r.EndOverride(ctx, "l", "bob"); {
	case len(w.live) == 0:
		require.ErrorIs(w, err, registry.ErrNoLimiter)
	case w.override == 0:
		require.ErrorIs(w, err, registry.ErrNotOverridden)
	default:
		require.NoError(w, err)
		w.endOverride("ended by bob")
	}
}

func (w *world) endOverride(why string) {
	if w.override != 0 {
		w.expect("OnLimiterOverrideEnded %s", why)
		w.override = 0
	}
}

func (w *world) runs(f func(*build) bool) bool {
	return slices.ContainsFunc(w.running, func(e execution) bool { return f(e.of) })
}

// check compares everything that can be seen.
func (w *world) check() {
	synctest.Wait()
	if w.override != 0 && !time.Now().Before(w.until) {
		w.endOverride("its time is over")
	}
	used := 1
	if len(w.live)+len(w.running) == 0 {
		w.endOverride("no pipeline uses the limiter")
		used, w.taken = 0, 0
	}
	for _, id := range slices.Sorted(maps.Keys(w.removed)) {
		if !w.runs(func(n *build) bool { return n.id == id }) {
			w.expect("Forget %s", id)
			delete(w.removed, id)
		}
	}
	assert.ElementsMatch(w, w.expected, w.heard.take(), w.did)
	w.expected = nil
	for _, n := range w.builds {
		want := 1
		if w.live[n.id] == n || w.runs(func(of *build) bool { return of == n }) {
			want = 0
			used++
		}
		assert.Equal(w, want, n.disposed, "%s: build %d", w.did, n.number)
		assert.Equal(w, want == 0, isOpen(w.T, n.own), "%s: build %d", w.did, n.number)
	}
	assert.Equal(w, used, w.r.OwnedLimiters(), w.did)

	ids := slices.Sorted(maps.Keys(w.live))
	assert.Equal(w, fmt.Sprint(ids), fmt.Sprint(names(w.r)), w.did)
	for range w.r.Pipelines() {
		assert.False(w, w.r.IsLocked())
	}
	for id, p := range w.handles {
		if n := w.live[id]; n != nil {
			assert.Equal(w, n.number, versionOf(w.T, p), w.did)
		} else {
			assert.ErrorIs(w, p.Execute(w.Context(), nothing), registry.ErrRemoved, w.did)
		}
	}
	for _, p := range w.dead {
		assert.ErrorIs(w, p.Execute(w.Context(), nothing), registry.ErrRemoved, w.did)
	}
	defined := 0
	for _, name := range []string{"a", "b", "c"} {
		is := w.live[name] != nil
		assert.Equal(w, is, w.r.Defined(name), w.did)
		assert.Equal(w, is && (w.handles[name] != nil || w.handles[name+"/eu"] != nil), w.r.InUse(name), w.did)
		if is {
			defined++
		}
	}
	assert.Equal(w, defined, w.r.Definitions(), w.did)

	limiters := maps.Collect(w.r.Limiters())
	if len(ids) == 0 {
		assert.Empty(w, limiters, w.did)
		return
	}
	configured := w.live[ids[0]].limit
	effective := configured
	if w.override != 0 {
		effective = w.override
	}
	assert.True(w, isOpen(w.T, w.l), w.did)
	assert.Equal(w, max(0, effective-w.taken), available(w.l), w.did)
	assert.Equal(w, effective, w.l.Limits().Permits, w.did)
	for range w.r.Limiters() {
		assert.False(w, w.r.IsLocked())
	}
	i := limiters["l"]
	assert.Equal(w, plain(bucketOptions(effective)), i.Options, w.did)
	assert.Equal(w, plain(bucketOptions(configured)), i.Configured, w.did)
	assert.Equal(w, w.override != 0, i.Override != nil, w.did)
	assert.Equal(w, ids, i.Pipelines, w.did)
}

func (w *world) close() {
	w.did = "Close"
	for len(w.running) > 0 {
		w.end(0)
	}
	w.check()
	require.NoError(w, w.r.Close(w.Context()))
	for id := range w.live {
		w.expect("Forget %s", id)
	}
	w.endOverride("the registry was closed")
	assert.ElementsMatch(w, w.expected, w.heard.take())
	for _, n := range w.builds {
		assert.Equal(w, 1, n.disposed, n.number)
	}
	assert.Zero(w, w.r.OwnedLimiters())
}
