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

// One build runs at a time, whatever asks for it.
func TestBuildFunc_OneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		building := 0
		build := func(b *registry.Builder) error {
			building++
			assert.Equal(t, 1, building)
			time.Sleep(time.Second)
			building--
			b.Concurrency("l", one(5))
			return nil
		}
		require.NoError(t, r.Define("a", build))
		var wg sync.WaitGroup
		for _, f := range []func() error{
			func() error { return r.Reload(t.Context()) },
			func() error { return r.Apply(t.Context(), registry.Change{Define: builds{"a": build, "b": build}}) },
			func() error { _, err := r.GetOrDefine("c", build); return err },
			func() error { _, err := r.GetInstance("a", "eu"); return err },
			func() error { _, err := r.GetInstance("a", "us"); return err },
		} {
			for range 2 {
				wg.Go(func() { assert.NoError(t, f()) })
			}
		}
		wg.Wait()
		assert.Equal(t, []string{"a", "a/eu", "a/us", "b", "c"}, names(r))
	})
}

// If a change defines what Define is about to build, its function holds. If the change fails, that of Define does.
func TestDefine_DuringApply(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, nil)
			applied, defined := make(chan error), make(chan error)
			go func() {
				applied <- r.Apply(t.Context(), registry.Change{Define: builds{"orders": slow(func(b *registry.Builder) error {
					b.Add(version(1))
					if fails {
						return errBoom
					}
					return nil
				})}})
			}()
			synctest.Wait()
			go func() { defined <- r.Define("orders", with(version(2))) }()
			err := <-applied
			require.NoError(t, <-defined)
			if fails {
				require.ErrorIs(t, err, errBoom)
				assert.Equal(t, 2, versionOf(t, get(t, r, "orders")))
			} else {
				require.NoError(t, err)
				assert.Equal(t, 1, versionOf(t, get(t, r, "orders")))
			}
		})
	}
}
