package registry_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
)

// What a failed build made is disposed of like a version, and its limiters with it.
func TestOnDispose_FailedBuild(t *testing.T) {
	for name, end := range failing {
		t.Run(name, func(t *testing.T) {
			var j journal
			r := open(t, &registry.Options{ObserveLimiter: noteLimiters(&j)})
			var made *limiter.Concurrency
			assert.ErrorContains(t, r.Define("orders", func(b *registry.Builder) error {
				made = b.Concurrency("slots", one(1))
				b.OnDispose(func() error {
					_, err := made.TryAcquire(t.Context(), 1)
					assert.NoError(t, err, "it is still open")
					return nil
				})
				if err := noted(&j)(b); err != nil {
					return err
				}
				return end(b)
			}), "boom")
			assert.Equal(t, order, j.take())
			assert.Zero(t, r.OwnedLimiters())
			_, err := made.TryAcquire(t.Context(), 1)
			assert.ErrorIs(t, err, limiter.ErrClosed)
		})
	}
}

// What goes wrong then is reported, and does not hide why the build failed.
func TestOnDispose_FailsAfterFailedBuild(t *testing.T) {
	other := errors.New("other")
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	var f fickle
	broken := func(b *registry.Builder) error {
		b.OnDispose(func() error { return other })
		return errBoom
	}
	f.do(broken)
	assert.ErrorIs(t, r.Define("orders", f.build), errBoom)
	assert.Equal(t, []string{"DisposeFailed orders"}, l.take())
	assert.ErrorIs(t, l.last(t, registry.EventDisposeFailed).Err, other)
	assert.NotErrorIs(t, l.last(t, registry.EventDisposeFailed).Err, errBoom)
	f.calmDown()
	require.NoError(t, r.Define("orders", f.build))
	f.do(broken)
	assert.ErrorIs(t, r.Reload(t.Context()), errBoom)
	assert.ElementsMatch(t, []string{"DisposeFailed orders", "ReloadFailed orders"}, l.take())
}

// Builds that succeeded are disposed of if the reload that they were for fails.
func TestOnDispose_OtherBuildsOfFailedReload(t *testing.T) {
	var l recorder
	var j journal
	r := open(t, &registry.Options{Listener: &l})
	var good, bad fickle
	require.NoError(t, r.Define("bad", bad.build))
	p := define(t, r, "good", good.build)
	bad.do(func(*registry.Builder) error { return errBoom })
	good.do(func(b *registry.Builder) error {
		b.OnDispose(func() error { panic("ouch") })
		return noted(&j)(b)
	})
	assert.ErrorIs(t, r.Reload(t.Context()), errBoom)
	assert.Equal(t, order, j.take())
	assert.Equal(t, []string{"ReloadFailed bad", "DisposeFailed good"}, l.take())
	assert.ErrorContains(t, l.last(t, registry.EventDisposeFailed).Err, "ouch")
	assert.Zero(t, r.OwnedLimiters())
	assert.Equal(t, 1, versionOf(t, p))
}

// A build that fails has not touched what is in force.
func TestReload_FailedBuildReconfiguresNothing(t *testing.T) {
	r := open(t, nil)
	var live, staged *limiter.Concurrency
	limit, fail := 3, false
	require.NoError(t, r.Define("a", func(b *registry.Builder) error {
		live = b.Concurrency("slots", one(limit))
		if fail {
			staged = b.Concurrency("new", one(limit))
		}
		return nil
	}))
	require.NoError(t, r.Define("b", func(*registry.Builder) error {
		if fail {
			return errBoom
		}
		return nil
	}))
	before := live
	limit, fail = 7, true
	require.ErrorIs(t, r.Reload(t.Context()), errBoom)
	assert.Same(t, before, live)
	assert.Equal(t, 3, live.Options().PermitLimit)
	_, err := staged.TryAcquire(t.Context(), 1)
	assert.ErrorIs(t, err, limiter.ErrClosed)
	assert.Equal(t, 1, r.OwnedLimiters())
	fail = false
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 7, live.Options().PermitLimit)
}
