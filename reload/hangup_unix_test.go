//go:build unix

package reload_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// The one test with real time: signals come from outside of every bubble.
func TestStart_Hangup(t *testing.T) {
	w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
	w.write(t, windows(1))
	watcher, err := reload.Start(t.Context(), w.registry, w.path, &reload.Options{
		Hangup: true, Interval: -1, Settle: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, w.registry.Close(context.Background())) }()
	defer watcher.Stop()
	orders, err := w.registry.Get("orders")
	require.NoError(t, err)
	require.NoError(t, try(orders))
	require.ErrorIs(t, try(orders), pipeline.ErrRejected)

	w.write(t, windows(2))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	require.Eventually(t, func() bool { return watcher.Status().Loads == 2 }, 10*time.Second, time.Millisecond)
	require.NoError(t, try(orders))
	require.ErrorIs(t, try(orders), pipeline.ErrRejected)
}
