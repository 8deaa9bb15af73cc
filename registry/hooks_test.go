package registry_test

import (
	"context"
	"errors"
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

func (h *hearing) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: h.OnEvent,
		Forget:  h.Forget,
	}
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

func overridable(b *registry.Builder) error { b.Concurrency("l", one(1)); return nil }

func overrideForASecond(ctx context.Context, r *registry.Registry) error {
	return r.Override(ctx, registry.Override{Limiter: "l", Options: one(2), Until: time.Now().Add(time.Second), By: "ann", Reason: "a sale"})
}

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
	{"Listener.OnEvent of an override", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventOverridden, f: f}
		return overridable
	}, overrideForASecond},
	{"Listener.OnEvent of an override that ends by itself", true, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventOverrideEnded, f: f}
		return overridable
	}, func(ctx context.Context, r *registry.Registry) error {
		defer time.Sleep(time.Second)
		return overrideForASecond(ctx, r)
	}},
	{"Listener.OnEvent of an override whose limiter is removed", false, func(o *registry.Options, f func()) registry.BuildFunc {
		o.Listener = &hearing{event: registry.EventOverrideEnded, f: f}
		return overridable
	}, func(ctx context.Context, r *registry.Registry) error {
		return errors.Join(overrideForASecond(ctx, r), removeOrders(ctx, r))
	}},
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
		for range r.Limiters() {
		}
		for range r.Pipelines() {
		}
		_ = overrideForASecond(ctx, r)
		_ = r.EndOverride(ctx, "l", "ann")
	}},
	{"calls back on another goroutine", func(ctx context.Context, r *registry.Registry) {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = r.Get("bystander")
			_ = r.Reload(ctx, "bystander")
			_, _ = r.GetInstance("bystander", "other")
		})
		wg.Wait()
	}},
	{"closes the registry", func(_ context.Context, r *registry.Registry) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Close(ctx) // it would wait for the hook
	}},
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
