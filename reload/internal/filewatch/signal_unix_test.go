//go:build unix

package filewatch_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/reload/internal/filewatch"
)

// The one test with real time: signals come from outside of every bubble.
func TestHangup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, path, oldContent)
	signals, stop := filewatch.NotifyHangup()
	defer stop()
	loaded := make(chan string)
	w, err := filewatch.New(filewatch.Options{
		Path:     path,
		Interval: -1,
		Settle:   time.Millisecond,
		Signals:  signals,
		Ended:    func(filewatch.Result) {},
		Load: func(_ context.Context, content []byte) error {
			loaded <- string(content)
			return nil
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	for range 3 {
		require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
		select {
		case content := <-loaded:
			assert.Equal(t, oldContent, content)
		case <-time.After(20 * time.Second):
			require.Fail(t, "nothing was loaded")
		}
	}
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

// Opening a pipe without a writer would wait forever.
func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		require.NoError(t, syscall.Mkfifo(path, 0o600))
		k := newKeeper(t, path, nil)
		assert.ErrorIs(t, k.watch.Reload(t.Context()), regularfile.ErrNotRegular)
		k.expect(nil, []string{"reload: cannot read FILE: not a regular file (p---------)"})
	})
}
