package registry_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
)

// fickle builds versions that are numbered, until something else is to happen.
type fickle struct {
	numbered
	instead atomic.Pointer[registry.BuildFunc]
}

func (f *fickle) build(b *registry.Builder) error {
	if instead := f.instead.Load(); instead != nil {
		return (*instead)(b)
	}
	return f.numbered.build(b)
}

func (f *fickle) do(b registry.BuildFunc) { f.instead.Store(&b) }
func (f *fickle) calmDown()               { f.instead.Store(nil) }

// The text of a panic is the same each time, so that it can be told from another
// one; where it came from stands beside it.
func TestReload_BuildPanics(t *testing.T) {
	r := open(t, nil)
	var f fickle
	require.NoError(t, r.Define("orders", f.build))
	f.do(func(*registry.Builder) error { panic(errBoom) })
	err := r.Reload(t.Context())
	assert.EqualError(t, err, "registry: building pipeline orders: panic: boom")
	assert.ErrorIs(t, err, errBoom)
	panicked, ok := errors.AsType[*registry.PanicError](err)
	require.True(t, ok)
	assert.Contains(t, string(panicked.Stack), "TestReload_BuildPanics")
	assert.EqualError(t, r.Reload(t.Context()), err.Error())
}

func TestReload_ContextEndedBefore(t *testing.T) {
	r := open(t, nil)
	var n numbered
	p := define(t, r, "orders", n.build)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBoom)
	for range 50 { // not just mostly
		for _, err := range []error{
			r.Reload(ctx),
			r.Remove(ctx, "orders"),
			r.Apply(ctx, registry.Change{Define: map[string]registry.BuildFunc{"orders": n.build}}),
		} {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, errBoom)
		}
	}
	assert.Equal(t, 1, n.made())
	assert.Equal(t, 1, versionOf(t, p))
}

func TestReload_ContextEndsBetweenBuilds(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	var one, two fickle
	require.NoError(t, r.Define("1", one.build))
	require.NoError(t, r.Define("2", two.build))
	p := get(t, r, "1")
	ctx, cancel := context.WithCancel(t.Context())
	var disposed atomic.Int64
	one.do(func(b *registry.Builder) error {
		b.OnDispose(func() error { disposed.Add(1); return nil })
		cancel()
		return nil
	})
	assert.ErrorIs(t, r.Reload(ctx), context.Canceled)
	assert.Equal(t, 1, two.made(), "the second was not built any more")
	assert.Equal(t, 1, versionOf(t, p))
	assert.EqualValues(t, 1, disposed.Load())
	assert.Empty(t, l.take(), "no pipeline is at fault")
}

func TestReload_ContextEndsWhileAnotherRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var f fickle
		p := define(t, r, "orders", f.build)
		f.do(func(b *registry.Builder) error {
			time.Sleep(time.Minute)
			return f.numbered.build(b)
		})
		done := make(chan error)
		go func() { done <- r.Reload(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		assert.ErrorIs(t, r.Reload(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		require.NoError(t, <-done)
		assert.Equal(t, 2, versionOf(t, p))
	})
}
