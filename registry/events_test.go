package registry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// RC1, RC3, RC4: each event as it is.
func TestListener_Events(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l recorder
		r := open(t, &registry.Options{Listener: &l, DrainTimeout: time.Minute})
		var f fickle
		slow := func(b *registry.Builder) error {
			time.Sleep(3 * time.Second)
			return f.numbered.build(b)
		}
		require.NoError(t, r.Define("orders", forEU(f.build)))
		p := getInstance(t, r, "orders", "eu")
		assert.Empty(t, l.take(), "a first build is no reload")
		ctx := pipeline.WithOperation(t.Context(), "by hand")
		source := pipeline.Source{Pipeline: "orders", Instance: "eu"}

		f.do(slow)
		end := hold(t, p)
		require.NoError(t, r.Reload(ctx))
		assert.Equal(t, pipeline.Event{
			Name: registry.EventReload, Severity: pipeline.SeverityInformation, Source: source, Operation: "by hand", Duration: 3 * time.Second,
		}, l.last(t, registry.EventReload))

		f.do(func(*registry.Builder) error { return errBoom })
		assert.ErrorIs(t, r.Reload(ctx), errBoom)
		e := l.last(t, registry.EventReloadFailed)
		assert.ErrorIs(t, e.Err, errBoom)
		e.Err = nil
		assert.Equal(t, pipeline.Event{
			Name: registry.EventReloadFailed, Severity: pipeline.SeverityError, Source: source, Operation: "by hand",
		}, e)

		time.Sleep(time.Minute)
		synctest.Wait()
		e = l.last(t, registry.EventDisposeFailed)
		assert.ErrorIs(t, e.Err, registry.ErrDrainTimeout)
		e.Err = nil
		assert.Equal(t, pipeline.Event{Name: registry.EventDisposeFailed, Severity: pipeline.SeverityError, Source: source}, e)
		end()
		assert.Equal(t, []string{"OnReload orders", "OnReload orders/eu", "ReloadFailed orders/eu", "DisposeFailed orders/eu"}, l.take())
	})
}

func TestListener_EventsOfExecutions(t *testing.T) {
	var heard []string
	r := open(t, &registry.Options{Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
		heard = append(heard, e.Name+" "+e.Source.String())
	})})
	p := define(t, r, "orders", with())
	for range 2 {
		heard = nil
		require.NoError(t, p.Execute(t.Context(), nothing))
		assert.Equal(t, []string{"PipelineExecuting orders", "PipelineExecuted orders"}, heard)
		require.NoError(t, r.Reload(t.Context()))
	}
}

// A nil pointer as listener is none, as it is for a pipeline.
func TestListener_Nil(t *testing.T) {
	for _, l := range []pipeline.Listener{nil, (*recorder)(nil), pipeline.ListenerFunc(nil)} {
		r := open(t, &registry.Options{Listener: l})
		p := define(t, r, "orders", with())
		require.NoError(t, r.Reload(t.Context()))
		require.NoError(t, p.Execute(t.Context(), nothing))
		require.NoError(t, r.Remove(t.Context(), "orders"))
	}
}

func TestObserveLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		r := registry.New(&registry.Options{DrainTimeout: -1, ObserveLimiter: func(name string, l limiter.StatisticsProvider) func() {
			assert.Positive(t, l.Statistics().AvailablePermits)
			if name == "no stop" {
				j.add("+%s", name)
				return nil
			}
			return noteLimiters(&j)(name, l)
		}})
		seen := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			assert.ElementsMatch(t, want, j.take(), what)
		}
		kind, fail := 0, false
		build := func(b *registry.Builder) error {
			subjects[kind].make(b, 5)
			b.Concurrency("no stop", one(1))
			if fail {
				b.Concurrency("staged", one(1))
				return errBoom
			}
			return nil
		}
		p := define(t, r, "a", build)
		require.NoError(t, r.Define("b", build))
		seen("built", "+l", "+no stop")
		for range 3 {
			require.NoError(t, r.Reload(t.Context()))
		}
		seen("shared and kept")
		fail = true
		require.ErrorIs(t, r.Reload(t.Context()), errBoom)
		seen("what never came into force")
		fail, kind = false, 1
		end := hold(t, p)
		require.NoError(t, r.Reload(t.Context()))
		seen("another kind", "+l")
		end()
		seen("the last user of the old one is gone", "-l")
		require.NoError(t, r.Close(t.Context()))
		seen("closed", "-l")
	})
}

// A panicking has methods that panic.
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

// A teller is a listener that tells of each pipeline what it hears, and can then do something.
type teller struct {
	journal

	do map[string]func()
}

func (l *teller) hear(what string, s pipeline.Source) {
	line := what + " " + s.String()
	l.add("%s", line)
	if do := l.do[line]; do != nil {
		do()
	}
}

func (l *teller) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		InForce: func(p *pipeline.Pipeline) {
			l.hear("InForce", pipeline.Source{Pipeline: p.Name(), Instance: p.Instance()})
		},
		OnEvent: func(_ context.Context, e pipeline.Event) {
			if e.Severity >= pipeline.SeverityInformation {
				l.hear(e.Name, e.Source)
			}
		},
		Forget: func(s pipeline.Source) { l.hear("Forget", s) },
	}
}

// Whatever takes long, a pipeline is forgotten after everything else of it was told, and one of that name that is defined again
// is told of after that.
func TestListener_ForgetIsLast(t *testing.T) {
	remove := func(ctx context.Context, r *registry.Registry) error {
		return r.Apply(ctx, registry.Change{Remove: []string{"orders"}})
	}
	for held, do := range map[string]func(ctx context.Context, r *registry.Registry, begin func(f func() error)){
		"OnPipelineRemoved orders": func(ctx context.Context, r *registry.Registry, begin func(f func() error)) {
			begin(func() error { return remove(ctx, r) })
		},
		"InForce orders": func(ctx context.Context, r *registry.Registry, begin func(f func() error)) {
			begin(func() error { return r.Reload(ctx) })
			begin(func() error { return remove(ctx, r) })
		},
		"OnReload orders": func(ctx context.Context, r *registry.Registry, begin func(f func() error)) {
			begin(func() error { return r.Reload(ctx) })
			begin(func() error { return remove(ctx, r) })
		},
		"ReloadFailed orders": func(ctx context.Context, r *registry.Registry, begin func(f func() error)) {
			begin(func() error {
				failing := map[string]registry.BuildFunc{"orders": func(*registry.Builder) error { return errBoom }}
				assert.ErrorIs(t, r.Apply(ctx, registry.Change{Define: failing}), errBoom)
				return nil
			})
			begin(func() error { return remove(ctx, r) })
		},
		"Forget orders": func(ctx context.Context, r *registry.Registry, begin func(f func() error)) {
			begin(func() error { return remove(ctx, r) })
			begin(func() error { return r.Define("orders", with()) })
		},
	} {
		t.Run(held, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := teller{do: make(map[string]func())}
				r := open(t, &registry.Options{Listener: &l})
				define(t, r, "orders", with())
				l.take()
				release := make(chan struct{})
				l.do[held] = func() { <-release }
				do(t.Context(), r, func(f func() error) {
					go func() { assert.NoError(t, f()) }()
					synctest.Wait()
				})
				last := "Forget orders"
				lines := l.take()
				if held == last {
					assert.Equal(t, last, lines[len(lines)-1])
				} else {
					assert.NotContains(t, lines, last)
				}
				close(release)
				synctest.Wait()
				if lines = l.take(); held == last {
					last = "InForce orders"
				}
				require.NotEmpty(t, lines)
				assert.Equal(t, last, lines[len(lines)-1])
			})
		})
	}
}

// A Forget that defines the pipeline again does not wait for itself.
func TestListener_ForgetDefines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := teller{do: make(map[string]func())}
		r := open(t, &registry.Options{Listener: &l})
		define(t, r, "orders", with())
		l.do["Forget orders"] = func() {
			delete(l.do, "Forget orders")
			assert.NoError(t, r.Define("orders", with()))
			assert.Equal(t, []string{"InForce orders", "Forget orders"}, l.take())
		}
		require.NoError(t, r.Remove(t.Context(), "orders"))
		synctest.Wait()
		assert.Equal(t, []string{"InForce orders"}, l.take())
	})
}
