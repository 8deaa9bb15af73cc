package registry_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// failing are the ways in which a build fails, all with "boom".
var failing = map[string]registry.BuildFunc{
	"error":   func(*registry.Builder) error { return errBoom },
	"panic":   func(*registry.Builder) error { panic("boom") },
	"invalid": with(&invalid{}),
}

func TestDefine_FailedBuildLeavesNothing(t *testing.T) {
	for name, f := range failing {
		r := open(t, nil)
		assert.ErrorContains(t, r.Define("orders", f), "boom", name)
		_, err := r.Get("orders")
		assert.ErrorIs(t, err, registry.ErrNotDefined, name)
		assert.Zero(t, r.Definitions(), name)
		assert.Equal(t, 2, versionOf(t, define(t, r, "orders", with(version(2)))), name)
	}
}

// A build that calls runtime.Goexit fails, as one that panics.
func TestDefine_Goexit(t *testing.T) {
	r := open(t, nil)
	var j journal
	err := r.Define("orders", func(b *registry.Builder) error {
		b.OnDispose(j.note("disposed", nil))
		runtime.Goexit()
		return nil
	})
	assert.EqualError(t, err, "registry: building pipeline orders: it left its goroutine")
	assert.Equal(t, []string{"disposed"}, j.take())
}

func TestDefine_InvalidStrategies(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	var j journal
	err := r.Define("orders", func(b *registry.Builder) error {
		b.OnDispose(j.note("OnDispose 1", nil))
		b.OnDispose(j.note("OnDispose 2", nil))
		b.Add(&closing{j.note("close 1", nil)}, nil, &invalid{closing{j.note("close 2", nil)}})
		return nil
	})
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.ErrorIs(t, err, errBoom)
	assert.ErrorContains(t, err, "Strategies[1] must not be nil")
	assert.Equal(t, []string{"OnDispose 2", "OnDispose 1", "close 1", "close 2"}, j.take())

	assert.EqualError(t, r.Define("orders", with((*closing)(nil))),
		"registry: building pipeline orders: pipeline: Strategies[0] must not be nil")
	assert.ErrorContains(t, r.Define("orders", func(b *registry.Builder) error { b.OnDispose(nil); return nil }), "OnDispose")
	assert.Empty(t, l.take())
}

// What asks for a pipeline while it is defined waits, and gets what Define got.
func TestGet_DuringDefine(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, nil)
			go func() {
				_ = r.Define("orders", func(*registry.Builder) error {
					time.Sleep(time.Second)
					if fails {
						return errBoom
					}
					return nil
				})
			}()
			synctest.Wait()
			require.ErrorIs(t, r.Define("orders", with()), registry.ErrDefined)
			for _, get := range []func() error{
				func() error { _, err := r.Get("orders"); return err },
				func() error { _, err := r.GetInstance("orders", "eu"); return err },
				func() error { _, err := r.GetOrDefine("orders", with()); return err },
			} {
				go func() {
					if err := get(); fails {
						assert.ErrorIs(t, err, errBoom)
					} else {
						assert.NoError(t, err)
					}
				}()
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		})
	}
}

// outcome is what a GetInstance came back with.
type outcome struct {
	p   *pipeline.Pipeline
	err error
}

// stampede has n goroutines ask for an instance whose build waits, and returns what they got once release has let it go
// on.
func stampede(r *registry.Registry, n int, release func()) []outcome {
	outcomes := make([]outcome, n)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() { outcomes[i].p, outcomes[i].err = r.GetInstance("orders", "eu") })
	}
	synctest.Wait()
	release()
	wg.Wait()
	return outcomes
}

// forEU returns a build function that is f for the instance "eu".
func forEU(f registry.BuildFunc) registry.BuildFunc {
	return func(b *registry.Builder) error {
		if b.Instance == "eu" {
			return f(b)
		}
		return nil
	}
}

// slow takes a second.
func slow(f registry.BuildFunc) registry.BuildFunc {
	return func(b *registry.Builder) error {
		time.Sleep(time.Second)
		return f(b)
	}
}

func TestGetInstance_BuiltOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var n numbered
		require.NoError(t, r.Define("orders", forEU(slow(n.build))))
		all := stampede(r, 100, func() {})
		for _, o := range all {
			require.NoError(t, o.err)
			assert.Same(t, all[0].p, o.p)
		}
		assert.Equal(t, 1, n.made())
	})
}

func TestGetInstance_FailedBuildIsTriedAgain(t *testing.T) {
	for name, f := range failing {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				var builds atomic.Int64
				require.NoError(t, r.Define("orders", forEU(slow(func(b *registry.Builder) error {
					if builds.Add(1) == 1 {
						return f(b)
					}
					b.Add(version(2))
					return nil
				}))))
				for _, o := range stampede(r, 10, func() {}) {
					assert.Nil(t, o.p)
					assert.ErrorContains(t, o.err, "boom")
					assert.ErrorContains(t, o.err, "orders/eu")
				}
				assert.EqualValues(t, 1, builds.Load())
				assert.Equal(t, 2, versionOf(t, getInstance(t, r, "orders", "eu")))
			})
		})
	}
}

// A change that comes into force during the first build of an instance builds the instance, too. A first build has perhaps read
// what was before it, so it comes to nothing; what goes wrong with its end is no reason not to have the pipeline.
func TestGetInstance_DuringAChange(t *testing.T) {
	for name, change := range map[string]func(context.Context, *registry.Registry, registry.BuildFunc) error{
		"Reload": func(ctx context.Context, r *registry.Registry, _ registry.BuildFunc) error { return r.Reload(ctx) },
		"Apply": func(ctx context.Context, r *registry.Registry, f registry.BuildFunc) error {
			return r.Apply(ctx, registry.Change{Define: builds{"orders": f}})
		},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var l recorder
					r := open(t, &registry.Options{Listener: &l})
					var config, made atomic.Int64
					config.Store(1)
					build := forEU(func(b *registry.Builder) error {
						read := config.Load()
						if made.Add(1) == 1 {
							time.Sleep(time.Second)
							b.OnDispose(func() error { return errBoom })
							if fails {
								return errBoom
							}
						}
						b.Add(version(read))
						return nil
					})
					require.NoError(t, r.Define("orders", build))
					for _, o := range stampede(r, 3, func() {
						config.Store(2)
						require.NoError(t, change(t.Context(), r, build))
						l.take()
					}) {
						require.NoError(t, o.err)
						assert.Equal(t, 2, versionOf(t, o.p))
					}
					assert.Equal(t, []string{"DisposeFailed orders/eu"}, l.take())
				})
			})
		}
	}
}

// If the change fails, the first build holds: it is as old as the other instances.
func TestGetInstance_DuringAFailingReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var f fickle
		require.NoError(t, r.Define("fails", f.build))
		var n numbered
		require.NoError(t, r.Define("orders", forEU(slow(n.build))))
		f.do(failing["error"])
		for _, o := range stampede(r, 3, func() { require.ErrorIs(t, r.Reload(t.Context()), errBoom) }) {
			require.NoError(t, o.err)
			versionOf(t, o.p)
		}
	})
}

// The first build of an instance comes to nothing if its definition is removed meanwhile.
func TestRemove_DuringFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var j journal
		require.NoError(t, r.Define("orders", forEU(slow(func(b *registry.Builder) error {
			b.OnDispose(j.note("disposed", nil))
			return nil
		}))))
		for _, o := range stampede(r, 3, func() { require.NoError(t, r.Remove(t.Context(), "orders")) }) {
			assert.ErrorIs(t, o.err, registry.ErrRemoved)
		}
		assert.Equal(t, []string{"disposed"}, j.take())
	})
}

// insideCalls are what returns an error at once with a context that a change or Close would wait for.
func insideCalls(ctx context.Context, r *registry.Registry) []error {
	return []error{
		r.Reload(ctx), r.Remove(ctx, "orders"), r.Apply(ctx, registry.Change{Define: builds{"new": with()}}),
	}
}

func TestBuilder_Context(t *testing.T) {
	type key struct{}
	r, other := open(t, nil), open(t, nil)
	var ctx context.Context
	build := func(b *registry.Builder) error {
		ctx = b.Context()
		assert.NoError(t, ctx.Err())
		for _, err := range insideCalls(ctx, r) {
			assert.ErrorIs(t, err, registry.ErrReloading)
		}
		assert.NoError(t, other.Reload(ctx), "another registry")
		return nil
	}
	given := context.WithValue(t.Context(), key{}, "the caller's")
	for _, f := range []func() error{
		func() error { return r.Define("orders", build) },
		func() error { _, err := r.GetInstance("orders", "eu"); return err },
		func() error { return r.Reload(given) },
		func() error { return r.Apply(given, registry.Change{Define: builds{"orders": build}}) },
	} {
		require.NoError(t, f())
		assert.ErrorIs(t, ctx.Err(), context.Canceled, "the context ends with the build")
	}
	assert.Equal(t, "the caller's", ctx.Value(key{}))
}

// The context of an event tells, too: Reload would report events without end.
func TestReload_ByAListener(t *testing.T) {
	var r *registry.Registry
	var heard []error
	r = open(t, &registry.Options{Listener: pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
		if e.Name == registry.EventReload {
			heard = insideCalls(ctx, r)
		}
	})})
	require.NoError(t, r.Define("orders", with()))
	require.NoError(t, r.Reload(t.Context()))
	require.Len(t, heard, 3)
	for _, err := range heard {
		require.ErrorIs(t, err, registry.ErrReloading)
	}
}

func TestClose_ByABuildFunction(t *testing.T) {
	r := registry.New(nil)
	require.NoError(t, r.Define("orders", forEU(func(b *registry.Builder) error {
		assert.ErrorContains(t, r.Close(b.Context()), "would wait for its caller")
		return nil
	})))
	_, err := r.GetInstance("orders", "eu")
	require.ErrorIs(t, err, registry.ErrClosed)
	require.NoError(t, r.Close(t.Context()))
}

// A first build that reads the options which the change that waits for it is about to set is taken into the change.
func TestReload_WaitsForAFirstBuild(t *testing.T) {
	for name, first := range map[string]func(r *registry.Registry, build registry.BuildFunc) error{
		"GetInstance": func(r *registry.Registry, _ registry.BuildFunc) error {
			_, err := r.GetInstance("b", "eu")
			return err
		},
		"Define": func(r *registry.Registry, build registry.BuildFunc) error { return r.Define("new", build) },
		"another goroutine": func(r *registry.Registry, _ registry.BuildFunc) error {
			done := make(chan error)
			go func() {
				_, err := r.GetInstance("b", "eu")
				done <- err
			}()
			return <-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				limit, reloading := 5, false
				limited := func(b *registry.Builder) error {
					b.Concurrency("l", one(limit))
					return nil
				}
				require.NoError(t, r.Define("b", limited))
				require.NoError(t, r.Define("a", func(*registry.Builder) error {
					if !reloading {
						return nil
					}
					reloading = false
					return first(r, limited)
				}))
				limit, reloading = 6, true
				require.NoError(t, r.Reload(t.Context()))
				assert.Equal(t, plain(one(6)), info(t, r).Options)
				for _, i := range r.Pipelines() {
					assert.Equal(t, i.Name == "a" || i.Name == "b" || i.Instance == "eu" || i.Name == "new", i.Version == 2)
				}
			})
		})
	}
}

// A change that does not build the pipeline does not help: the conflict is returned at once.
func TestGetInstance_ConflictDuringAChangeOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		limit := 5
		require.NoError(t, r.Define("b", func(b *registry.Builder) error {
			b.Concurrency("l", one(limit))
			return nil
		}))
		require.NoError(t, r.Define("a", slow(with())))
		limit = 6
		reloaded := make(chan error)
		go func() { reloaded <- r.Reload(t.Context(), "a") }()
		synctest.Wait()
		began := time.Now()
		_, err := r.GetInstance("b", "eu")
		assert.ErrorIs(t, err, registry.ErrLimiterConflict)
		assert.Zero(t, time.Since(began))
		require.NoError(t, <-reloaded)
	})
}
