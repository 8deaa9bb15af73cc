package registry_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// PR16, PR18: everything says that it is closed.
func TestRegistry_AfterClose(t *testing.T) {
	r := registry.New(nil)
	require.NoError(t, r.Define("built", with()))
	require.NoError(t, r.Define("unbuilt", with()))
	p, eu := get(t, r, "built"), getInstance(t, r, "built", "eu")
	for range 2 {
		require.NoError(t, r.Close(t.Context()))
		for _, p := range []*pipeline.Pipeline{p, eu} {
			err := p.Execute(t.Context(), nothing)
			assert.ErrorIs(t, err, registry.ErrClosed)
			assert.ErrorIs(t, err, pipeline.ErrClosed)
			assert.Equal(t, "built", p.Name())
		}
		for _, name := range []string{"built", "unbuilt", "new"} {
			_, err := r.Get(name)
			assert.ErrorIs(t, err, registry.ErrClosed)
			_, err = r.GetInstance(name, "eu")
			assert.ErrorIs(t, err, registry.ErrClosed)
			_, err = r.GetOrDefine(name, with())
			assert.ErrorIs(t, err, registry.ErrClosed)
			assert.ErrorIs(t, r.Define(name, with()), registry.ErrClosed)
			assert.ErrorIs(t, r.Reload(t.Context(), name), registry.ErrClosed)
			assert.ErrorIs(t, r.Remove(t.Context(), name), registry.ErrClosed)
			assert.ErrorIs(t, r.RemoveInstance(name, "eu"), registry.ErrClosed)
			assert.ErrorIs(t, r.Apply(t.Context(), registry.Change{Define: builds{name: with()}}), registry.ErrClosed)
		}
		assert.ErrorIs(t, r.Reload(t.Context()), registry.ErrClosed)
		assert.ErrorIs(t, r.Apply(t.Context(), registry.Change{}), registry.ErrClosed)
		assert.Empty(t, names(r))
	}
}

// PR17: a handle belongs to the registry.
func TestGet_HandleCannotBeClosed(t *testing.T) {
	r := open(t, nil)
	var j journal
	p := define(t, r, "orders", noted(&j))
	assert.ErrorContains(t, p.Close(), "orders")
	assert.Empty(t, j.take())
	require.NoError(t, p.Execute(t.Context(), nothing))
}

// DP2: what was made elsewhere survives.
func TestClose_PipelinesOfTheProgramStayOpen(t *testing.T) {
	r := registry.New(nil)
	l := weir.Must(limiter.NewConcurrency(one(1)))
	defer func() { require.NoError(t, l.Close()) }()
	outsider := weir.Must(pipeline.New("outsider", ratelimit.New(l, nil)))
	p := define(t, r, "orders", with(ratelimit.New(l, nil), pipeline.Embed(outsider)))
	require.NoError(t, r.Close(t.Context()))
	assert.ErrorIs(t, p.Execute(t.Context(), nothing), registry.ErrClosed)
	assert.NoError(t, outsider.Execute(t.Context(), nothing))
	assert.True(t, isOpen(t, l))
}

func TestClose_DrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(&registry.Options{DrainTimeout: 3 * time.Second})
		var j journal
		require.NoError(t, r.Define("orders", noted(&j)))
		require.NoError(t, r.Define("others", with()))
		end := hold(t, get(t, r, "orders"))
		endOther := hold(t, get(t, r, "others"))
		began := time.Now()
		err := r.Close(t.Context())
		assert.Equal(t, 3*time.Second, time.Since(began), "all at once, not one after the other")
		assert.ErrorIs(t, err, registry.ErrDrainTimeout)
		assert.ErrorContains(t, err, "orders")
		assert.ErrorContains(t, err, "others")
		assert.Equal(t, order, j.take())
		assert.Equal(t, "began on <nil>", end())
		endOther()
		assert.Equal(t, err, r.Close(t.Context()))
	})
}

func TestClose_ContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(&registry.Options{DrainTimeout: -1})
		var j journal
		require.NoError(t, r.Define("orders", noted(&j)))
		end := hold(t, get(t, r, "orders"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errBoom)
		defer cancel()
		began := time.Now()
		err := r.Close(ctx)
		assert.Equal(t, time.Second, time.Since(began))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, errBoom)
		synctest.Wait()
		assert.Equal(t, order, j.take(), "disposing goes on behind it")
		err = r.Close(t.Context())
		assert.ErrorIs(t, err, registry.ErrDrainTimeout)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "this one had the time")
		end()
	})
}

// Each call of Close waits for as long as its own context allows.
func TestClose_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		var j journal
		require.NoError(t, r.Define("orders", noted(&j)))
		end := hold(t, get(t, r, "orders"))
		done := make(chan error, 10)
		for range cap(done) {
			go func() { done <- r.Close(t.Context()) }()
		}
		synctest.Wait()
		time.AfterFunc(5*time.Second, func() { assert.Equal(t, "began on <nil>", end()) })
		began := time.Now()
		for range cap(done) {
			assert.NoError(t, <-done)
		}
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, order, j.take(), "once")
	})
}

func TestClose_DuringFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		var j journal
		require.NoError(t, r.Define("orders", forEU(slow(noted(&j)))))
		for _, o := range stampede(r, 3, func() { require.NoError(t, r.Close(t.Context())) }) {
			assert.Nil(t, o.p)
			assert.ErrorIs(t, o.err, registry.ErrClosed)
		}
		assert.Equal(t, order, j.take())
		assert.Zero(t, r.OwnedLimiters())
	})
}

func TestClose_DuringReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l recorder
		r := registry.New(&registry.Options{Listener: &l})
		var j journal
		var n numbered
		p := define(t, r, "orders", func(b *registry.Builder) error {
			if n.build(b); n.made() > 1 {
				time.Sleep(time.Second)
			}
			return noted(&j)(b)
		})
		reload, waiting := make(chan error), make(chan error)
		go func() { reload <- r.Reload(t.Context()) }()
		synctest.Wait()
		go func() { waiting <- r.Reload(t.Context()) }()
		synctest.Wait()
		go func() {
			assert.ErrorIs(t, <-reload, registry.ErrClosed)
			assert.ErrorIs(t, <-waiting, registry.ErrClosed)
		}()
		require.NoError(t, r.Close(t.Context()))
		assert.Equal(t, slices.Concat(order, order), j.take(), "what was in force, and what was built in vain")
		assert.ErrorIs(t, p.Execute(t.Context(), nothing), registry.ErrClosed)
		assert.Zero(t, r.OwnedLimiters())
		assert.NotContains(t, l.take(), "OnReload orders")
	})
}

func TestClose_ConcurrentSafe(t *testing.T) {
	for range 100 {
		r := registry.New(nil)
		var n numbered
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency("l", one(100)), nil))
			return n.build(b)
		}))
		done := make(chan error)
		for _, f := range []func() error{
			func() error { return r.Close(t.Context()) },
			func() error { return r.Close(t.Context()) },
			func() error { return r.Reload(t.Context()) },
			func() error { return r.RemoveInstance("orders", "eu") },
			func() error { _, err := r.GetInstance("orders", "eu"); return err },
			func() error {
				p, err := r.Get("orders")
				if err != nil {
					return err
				}
				return p.Execute(t.Context(), nothing)
			},
		} {
			go func() { done <- f() }()
		}
		for range 6 {
			if err := <-done; err != nil && !isAny(err, []error{registry.ErrClosed, registry.ErrRemoved}) {
				t.Error(err)
			}
		}
		require.NoError(t, r.Close(t.Context()))
		assert.Zero(t, r.OwnedLimiters())
	}
}

func TestClose_DiscardFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		require.NoError(t, r.Define("orders", forEU(slow(func(b *registry.Builder) error {
			b.OnDispose(func() error { return errBoom })
			return nil
		}))))
		go func() { _, _ = r.GetInstance("orders", "eu") }()
		synctest.Wait()
		assert.ErrorIs(t, r.Close(t.Context()), errBoom)
	})
}
