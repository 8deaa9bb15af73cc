package registry_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// A hook is a function of the program that the registry calls. set gives the options of a registry and
// the build function of the pipeline "orders" one that calls f when it is time; trigger makes it time.
type hook struct {
	name    string
	ours    bool // it runs on a goroutine of the registry
	set     func(o *registry.Options, f func()) registry.BuildFunc
	trigger func(ctx context.Context, r *registry.Registry) error
}

// hearing is a listener that calls f for one event.
type hearing struct {
	event  string
	f      func()
	forget func()
}

func (h *hearing) OnEvent(_ context.Context, e pipeline.Event) {
	if e.Name == h.event {
		h.f()
	}
}

func (h *hearing) Forget(pipeline.Source) {
	if h.forget != nil {
		h.forget()
	}
}

func reloadAll(ctx context.Context, r *registry.Registry) error { return r.Reload(ctx) }

func removeOrders(ctx context.Context, r *registry.Registry) error { return r.Remove(ctx, "orders") }

// keeping builds with a thing that calls the functions that are not nil.
func keeping(make, reconfigure, closed func()) registry.BuildFunc {
	options := 0
	call := func(f func()) {
		if f != nil {
			f()
		}
	}
	return func(b *registry.Builder) error {
		options++
		registry.Keep(b, "mine", options, registry.Kept[*closing, int]{
			Kind: "thing",
			Make: func(int) (*closing, error) {
				call(make)
				return &closing{func() error { call(closed); return nil }}, nil
			},
			Reconfigure: func(*closing, int) error { call(reconfigure); return nil },
		})
		return nil
	}
}

var hooks = []hook{
	{"Instance", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Instance = func(name string) string {
			if name == "late" {
				f()
			}
			return ""
		}
		return with()
	}, func(_ context.Context, r *registry.Registry) error { return r.Define("late", with()) }},
	{"BuildFunc of a first build", false, func(_ *registry.Options, f func()) registry.BuildFunc {
		return func(b *registry.Builder) error {
			if b.Instance == "eu" {
				f()
			}
			return nil
		}
	}, func(_ context.Context, r *registry.Registry) error {
		_, err := r.GetInstance("orders", "eu")
		return err
	}},
	{"BuildFunc of a reload", false, func(_ *registry.Options, f func()) registry.BuildFunc {
		built := false
		return func(*registry.Builder) error {
			if built {
				f()
			}
			built = true
			return nil
		}
	}, reloadAll},
	{"OnDispose of a replaced version", true, func(_ *registry.Options, f func()) registry.BuildFunc {
		return func(b *registry.Builder) error {
			b.OnDispose(func() error { f(); return nil })
			return nil
		}
	}, removeOrders},
	{"OnDispose of a failed build", false, func(_ *registry.Options, f func()) registry.BuildFunc {
		built := false
		return func(b *registry.Builder) error {
			if !built {
				built = true
				return nil
			}
			b.OnDispose(func() error { f(); return nil })
			return errBoom
		}
	}, reloadAll},
	{"Close of a strategy", true, func(_ *registry.Options, f func()) registry.BuildFunc {
		return with(&closing{func() error { f(); return nil }})
	}, removeOrders},
	{"Listener.OnEvent of a reload", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventReload, f: f}
		return with()
	}, reloadAll},
	{"Listener.OnEvent of a removal", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventRemoved, f: f}
		return with()
	}, func(ctx context.Context, r *registry.Registry) error {
		return r.Apply(ctx, registry.Change{Remove: []string{"orders"}})
	}},
	{"Listener.OnEvent of a failed reload", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventReloadFailed, f: f}
		built := false
		return func(*registry.Builder) error {
			if built {
				return errBoom
			}
			built = true
			return nil
		}
	}, reloadAll},
	{"Listener.OnEvent of a failed disposal", true, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventDisposeFailed, f: f}
		return func(b *registry.Builder) error {
			b.OnDispose(func() error { return errBoom })
			return nil
		}
	}, removeOrders},
	{"Listener.Forget", true, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{forget: f}
		return with()
	}, removeOrders},
	{"ObserveLimiter", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.ObserveLimiter = func(name string, _ limiter.StatisticsProvider) func() {
			if name == "l eu" {
				f()
			}
			return nil
		}
		return func(b *registry.Builder) error { b.Concurrency("l "+b.Instance, one(1)); return nil }
	}, func(_ context.Context, r *registry.Registry) error {
		_, err := r.GetInstance("orders", "eu")
		return err
	}},
	{"stop of ObserveLimiter", true, func(o *registry.Options, f func()) registry.BuildFunc {
		o.ObserveLimiter = func(string, limiter.StatisticsProvider) func() { return f }
		return func(b *registry.Builder) error { b.Concurrency("l", one(1)); return nil }
	}, removeOrders},
	{"Kept.Make", false, func(_ *registry.Options, f func()) registry.BuildFunc {
		return func(b *registry.Builder) error {
			if b.Instance == "eu" {
				return keeping(f, nil, nil)(b)
			}
			return nil
		}
	}, func(_ context.Context, r *registry.Registry) error {
		_, err := r.GetInstance("orders", "eu")
		return err
	}},
	{"Kept.Reconfigure", false, func(_ *registry.Options, f func()) registry.BuildFunc {
		return keeping(nil, f, nil)
	}, reloadAll},
	{"Close of a kept thing", true, func(_ *registry.Options, f func()) registry.BuildFunc {
		return keeping(nil, nil, f)
	}, removeOrders},
}

// tried is what a hook does once.
type tried struct {
	name string
	do   func(ctx context.Context, r *registry.Registry)
}

var tries = []tried{
	{"panics", func(context.Context, *registry.Registry) { panic("ouch") }},
	{"leaves its goroutine", func(context.Context, *registry.Registry) { runtime.Goexit() }},
	{"blocks until cancelled", func(ctx context.Context, _ *registry.Registry) { <-ctx.Done() }},
	{"calls back", func(ctx context.Context, r *registry.Registry) {
		_, _ = r.Get("bystander")
		_, _ = r.GetInstance("bystander", "other")
		_, _ = r.Get("orders")
		_ = r.Reload(ctx)
		_ = r.Define("another", with())
		_, _ = r.Get("another")
		_ = r.Remove(ctx, "another")
		_ = r.RemoveInstance("bystander", "other")
		for range r.All() {
		}
		for range r.Limiters() {
		}
	}},
	{"calls back on another goroutine", func(ctx context.Context, r *registry.Registry) {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = r.Get("bystander")
			_ = r.Reload(context.Background(), "bystander")
			_, _ = r.GetInstance("bystander", "other")
		})
		wg.Wait()
	}},
	{"closes the registry", func(_ context.Context, r *registry.Registry) { _ = r.Close(context.Background()) }},
}

// Whatever a function of the program does, no lock is held, other pipelines go on, nothing deadlocks, the
// process lives, and the registry can be used and closed afterwards.
func TestRegistry_HooksCanDoAnything(t *testing.T) {
	for _, h := range hooks {
		for _, try := range tries {
			t.Run(h.name+" "+try.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testHook(t, h, try) })
			})
		}
	}
}

func testHook(t *testing.T, h hook, try tried) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var r *registry.Registry
	var once atomic.Bool
	var o registry.Options
	inside := make(chan struct{})
	build := h.set(&o, func() {
		if once.CompareAndSwap(false, true) {
			close(inside)
			try.do(ctx, r)
		}
	})
	r = registry.New(&o)
	require.NoError(t, r.Define("bystander", with()))
	bystander := get(t, r, "bystander")
	require.NoError(t, r.Define("fresh", with()))
	require.NoError(t, r.Define("orders", build))
	get(t, r, "orders")

	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }() // as net/http does
		_ = h.trigger(t.Context(), r)
	}()
	<-inside
	synctest.Wait()
	if try.name != "closes the registry" {
		require.NoError(t, bystander.Execute(t.Context(), nothing))
		get(t, r, "fresh")
		getInstance(t, r, "bystander", "beside")
	}
	cancel()
	<-done
	synctest.Wait()
	if try.name == "closes the registry" {
		_, err := r.Get("orders")
		require.ErrorIs(t, err, registry.ErrClosed)
	} else {
		require.NoError(t, r.Reload(t.Context(), "bystander"))
	}
	_ = r.Close(context.Background())
	synctest.Wait()
	assert.Zero(t, r.OwnedLimiters())
}

// A function that leaves its goroutine does not keep the others from being called.
func TestOnDispose_Goexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l recorder
		r := registry.New(&registry.Options{Listener: &l})
		var j journal
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			b.Concurrency("l", one(1))
			for i := range 3 {
				b.OnDispose(func() error {
					j.add("OnDispose %d", i)
					if i == 1 {
						runtime.Goexit()
					}
					return nil
				})
				b.Add(&closing{func() error {
					j.add("close %d", i)
					if i == 1 {
						runtime.Goexit()
					}
					return nil
				}})
			}
			return nil
		}))
		get(t, r, "orders")
		err := r.Close(t.Context())
		require.ErrorContains(t, err, "OnDispose: it left its goroutine")
		assert.Equal(t, []string{"OnDispose 2", "OnDispose 1", "OnDispose 0", "close 0", "close 1", "close 2"}, j.take())
		assert.Zero(t, r.OwnedLimiters())
		assert.Equal(t, []string{"DisposeFailed orders", "Forget orders"}, l.take())
	})
}

// While a Reconfigure function blocks, builds that have nothing to do with it go on, and one that uses the
// same thing waits.
func TestKept_ReconfigureHoldsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		release := make(chan struct{})
		var options atomic.Int64
		build := func(b *registry.Builder) error {
			registry.Keep(b, "mine", options.Load(), registry.Kept[*int, int64]{
				Kind: "thing", Make: func(int64) (*int, error) { return new(int), nil },
				Reconfigure: func(*int, int64) error { <-release; return nil },
			})
			return nil
		}
		for _, name := range []string{"a", "b"} {
			require.NoError(t, r.Define(name, build))
		}
		require.NoError(t, r.Define("other", with()))
		get(t, r, "a")
		options.Store(1)
		reloaded, got := make(chan error, 1), make(chan error, 1)
		go func() { reloaded <- r.Reload(t.Context()) }()
		synctest.Wait()
		go func() { _, err := r.Get("b"); got <- err }()
		synctest.Wait()
		get(t, r, "other")
		select {
		case err := <-got:
			t.Errorf("b is there before it is known which options hold: %v", err)
		default:
		}
		close(release)
		require.NoError(t, <-reloaded)
		require.NoError(t, <-got)
	})
}

// The options of a kept thing may be the program's secrets.
func TestKeep_ConflictNamesFieldsNotValues(t *testing.T) {
	type options struct{ User, Password string }
	r := open(t, nil)
	password := "hunter2"
	build := func(b *registry.Builder) error {
		registry.Keep(b, "db", options{"me", password}, registry.Kept[*int, options]{
			Kind: "session", Make: func(options) (*int, error) { return new(int), nil },
			Reconfigure: func(*int, options) error { return nil },
		})
		return nil
	}
	require.NoError(t, r.Define("a", build))
	require.NoError(t, r.Define("b", build))
	get(t, r, "a")
	password = "hunter3"
	_, err := r.Get("b")
	require.ErrorIs(t, err, registry.ErrLimiterConflict)
	assert.ErrorContains(t, err, `session "db"`)
	assert.ErrorContains(t, err, "the options differ in Password")
	assert.NotContains(t, err.Error(), "hunter")
}

// A redacted prints the same whatever it is.
type redacted string

func (redacted) String() string   { return "…" }
func (redacted) GoString() string { return "…" }

// Without a Reconfigure function other options make another thing, also if both print alike.
func TestKeep_OptionsThatPrintAlike(t *testing.T) {
	r := open(t, nil)
	password := redacted("one")
	made := 0
	require.NoError(t, r.Define("a", func(b *registry.Builder) error {
		registry.Keep(b, "db", password, registry.Kept[*int, redacted]{
			Kind: "session", Make: func(redacted) (*int, error) { made++; return new(int), nil },
		})
		return nil
	}))
	get(t, r, "a")
	for i, next := range []redacted{"two", "two", "three"} {
		password = next
		require.NoError(t, r.Reload(t.Context()))
		assert.Equal(t, []int{2, 2, 3}[i], made)
	}
}

func TestKeep_OptionsThatCannotBeCompared(t *testing.T) {
	type options struct {
		F float64
		X any
	}
	nan := func() float64 { zero := 0.0; return zero / zero }()
	r := open(t, nil)
	for name, o := range map[string]options{"slice": {1, []int{1}}, "function": {1, func() {}}, "NaN": {nan, 1}} {
		require.NoError(t, r.Define(name, func(b *registry.Builder) error {
			registry.Keep(b, "x", o, registry.Kept[*int, options]{
				Kind: "thing", Make: func(options) (*int, error) { return new(int), nil },
				Reconfigure: func(*int, options) error { return nil },
			})
			return nil
		}))
		for range 2 {
			_, err := r.Get(name)
			require.ErrorContains(t, err, `thing "x": its options cannot be compared`, name)
		}
	}
	assert.Zero(t, r.OwnedLimiters())
}

// A limiter and things of each kind have names of their own.
func TestKeep_NamesOfOtherKinds(t *testing.T) {
	r := open(t, nil)
	thing := func(b *registry.Builder, kind, name string) {
		registry.Keep(b, name, 1, registry.Kept[*int, int]{Kind: kind, Make: func(int) (*int, error) { return new(int), nil }})
	}
	require.NoError(t, r.Define("a", func(b *registry.Builder) error {
		b.Concurrency("budget db", one(1))
		b.Concurrency("db", one(1))
		thing(b, "budget", "db")
		thing(b, "budget db", "x")
		thing(b, "budget", "db x")
		thing(b, "circuit breaker", "db")
		return nil
	}))
	get(t, r, "a")
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 6, r.OwnedLimiters())
}

// What an execution reports that outlives DrainTimeout comes before Forget.
func TestListener_ForgetAfterStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l recorder
		r := registry.New(&registry.Options{Listener: &l, DrainTimeout: time.Second})
		var n numbered
		require.NoError(t, r.Define("inner", n.build))
		require.NoError(t, r.Define("outer", func(b *registry.Builder) error {
			inner, err := b.Pipeline("inner")
			b.Add(pipeline.Embed(inner))
			return err
		}))
		end := hold(t, get(t, r, "outer"))
		require.NoError(t, r.Remove(t.Context(), "outer", "inner"))
		time.Sleep(time.Minute)
		for _, line := range l.take() {
			assert.NotContains(t, line, "Forget")
		}
		end()
		synctest.Wait()
		assert.ElementsMatch(t, []string{"Forget outer", "Forget inner"}, l.take())
		require.NoError(t, r.Close(t.Context()))
	})
}

// Close does not wait for them: it has waited for DrainTimeout.
func TestClose_DoesNotWaitForStragglers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(&registry.Options{DrainTimeout: time.Second})
		require.NoError(t, r.Define("orders", with()))
		end := hold(t, get(t, r, "orders"))
		began := time.Now()
		require.ErrorIs(t, r.Close(t.Context()), registry.ErrDrainTimeout)
		assert.Equal(t, time.Second, time.Since(began))
		end()
	})
}

// A build takes longer than the time between two reloads.
func TestGet_WhileReloadsKeepComing(t *testing.T) {
	for _, failing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, nil)
			require.NoError(t, r.Define("fails", func(*registry.Builder) error { return nil }))
			if failing {
				built := false
				require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"fails": func(*registry.Builder) error {
					if built {
						return errBoom
					}
					built = true
					return nil
				}}}))
			}
			var config atomic.Int64
			require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
				read := config.Load()
				time.Sleep(20 * time.Millisecond)
				b.Add(version(read))
				return nil
			}))
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
						config.Add(1)
						_ = r.Reload(t.Context())
					}
				}
			})
			began := time.Now()
			p := get(t, r, "orders")
			assert.Less(t, time.Since(began), 200*time.Millisecond)
			close(stop)
			wg.Wait()
			if !failing {
				require.EqualValues(t, config.Load(), versionOf(t, p), "the last reload counts")
			}
		})
	}
}

func TestReload_ByAFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var errs []error
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			errs = append(errs, r.Reload(context.Background()), r.Remove(context.Background(), "orders"))
			return nil
		}))
		get(t, r, "orders")
		require.Len(t, errs, 2)
		for _, err := range errs {
			require.ErrorIs(t, err, registry.ErrReloading)
		}
	})
}

// On another goroutine it cannot be seen, but it ends.
func TestReload_ByAFirstBuildOnAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var mu sync.Mutex
		var errs []error
		builds := 0
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			done := make(chan error)
			go func() { done <- r.Reload(context.Background()) }()
			err := <-done
			mu.Lock()
			defer mu.Unlock()
			builds++
			errs = append(errs, err)
			return nil
		}))
		began := time.Now()
		get(t, r, "orders")
		assert.LessOrEqual(t, time.Since(began), 30*time.Second)
		mu.Lock()
		assert.LessOrEqual(t, builds, 5)
		mu.Unlock()
		require.ErrorIs(t, errors.Join(errs...), registry.ErrReloading)
	})
}

// A first build that asks for itself on another goroutine waits until the registry is closed.
func TestGet_ByAFirstBuildOnAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			done := make(chan error)
			go func() { _, err := r.Get("orders"); done <- err }()
			return <-done
		}))
		got := make(chan error)
		go func() { _, err := r.Get("orders"); got <- err }()
		synctest.Wait()
		require.NoError(t, r.Close(t.Context()))
		require.ErrorIs(t, <-got, registry.ErrClosed)
	})
}

func TestClose_WaitsForAFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		var j journal
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			b.OnDispose(j.note("disposed", nil))
			time.Sleep(5 * time.Second)
			return nil
		}))
		go func() { _, _ = r.Get("orders") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Close(ctx), context.DeadlineExceeded)
		require.NoError(t, r.Close(t.Context()))
		assert.Equal(t, []string{"disposed"}, j.take())
	})
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
