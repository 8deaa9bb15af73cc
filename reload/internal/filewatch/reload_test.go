package filewatch_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload/internal/filewatch"
)

func TestReloadLoadsWhatHasNotChanged(t *testing.T) {
	watching(t, oldContent, nil, func(t *testing.T, k *keeper) {
		assert.NoError(t, k.watch.Reload(t.Context()))
		k.expect([]string{oldContent}, nil)

		write(t, k.path, "bad")
		k.until(5 * time.Second)
		k.expect([]string{"bad"}, []string{"refused: bad"})
		assert.EqualError(t, k.watch.Reload(t.Context()), "refused: bad")
		k.expect([]string{"bad"}, []string{"refused: bad"}) // Reload reports it again

		require.NoError(t, os.Remove(k.path))
		k.until(10 * time.Second)
		k.expect(nil, []string{missing})
		assert.Error(t, k.watch.Reload(t.Context()))
		k.expect(nil, []string{missing})
	})
}

func TestReloadEndsWithItsContext(t *testing.T) {
	var release chan struct{}
	slow := func(k *keeper, _ *filewatch.Options) {
		release = make(chan struct{})
		k.fail = func(content string) error {
			if content == newContent {
				<-release
			}
			return nil
		}
	}
	watching(t, oldContent, slow, func(t *testing.T, k *keeper) {
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		assert.Same(t, errBoom, k.watch.Reload(ended))

		write(t, k.path, newContent)
		k.until(5 * time.Second) // Run is loading
		ctx, cancelWaiting := context.WithTimeout(t.Context(), time.Second)
		defer cancelWaiting()
		assert.ErrorIs(t, k.watch.Reload(ctx), context.DeadlineExceeded)
		k.expect([]string{newContent}, nil)
		close(release)
		k.until(9 * time.Second)
		assert.Equal(t, newContent, k.inForce)
	})
}

// A caller of Reload who does not wait for the end of a Load has not refused
// anything: not what Run offers next, nor what it would try again.
func TestReloadInterruptsItsLoad(t *testing.T) {
	var hanging atomic.Bool
	interruptible := func(k *keeper, o *filewatch.Options) {
		o.Load = func(ctx context.Context, content []byte) error {
			if hanging.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return k.load(ctx, content)
		}
	}
	watching(t, oldContent, interruptible, func(t *testing.T, k *keeper) {
		k.failWith(errBoom)
		write(t, k.path, newContent)
		k.until(3 * time.Second)
		k.expect([]string{newContent}, []string{"boom"})
		k.failWith(nil)

		hanging.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, k.watch.Reload(ctx), context.DeadlineExceeded)
		hanging.Store(false)
		k.expect(nil, nil)

		k.until(15 * time.Second) // the retry is still due
		k.expect([]string{newContent}, []string{""})
	})
}
