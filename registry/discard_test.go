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
