package filewatch_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload/internal/filewatch"
)

func TestRunEndsAtOnce(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, time.Second, 2100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			k := newKeeper(t, filepath.Join(t.TempDir(), "weir.yaml"), nil)
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, errBoom)
			defer cancel()
			assert.Same(t, errBoom, k.watch.Run(ctx))
			assert.Equal(t, after, time.Since(k.began))
		})
	}
}

func TestIntervalAndSettle(t *testing.T) {
	slow := func(_ *keeper, o *filewatch.Options) { o.Interval, o.Settle = 10*time.Second, 100*time.Millisecond }
	watching(t, oldContent, slow, func(t *testing.T, k *keeper) {
		write(t, k.path, newContent)
		k.until(30 * time.Second)
		assert.Equal(t, []time.Duration{10200 * time.Millisecond}, k.at)
	})
}

func TestWithoutPolls(t *testing.T) {
	off := func(_ *keeper, o *filewatch.Options) { o.Interval = -1 }
	watching(t, "", off, func(t *testing.T, k *keeper) {
		write(t, k.path, oldContent)
		k.until(time.Hour)
		k.expect(nil, nil)
		assert.NoError(t, k.watch.Reload(t.Context()))
		k.expect([]string{oldContent}, nil)
	})
}

// What a program does to its working directory later does not move the file.
func TestRelativePath(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), oldContent)
	t.Chdir(dir)
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, "weir.yaml", nil)
		t.Chdir(t.TempDir())
		assert.NoError(t, k.watch.Reload(t.Context()))
		k.expect([]string{oldContent}, nil)
	})
}

// A path is not cleaned: behind a link, .. is not where one came from.
func TestPathBehindALink(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "there", "below"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "there", "below"), filepath.Join(dir, "link")))
	write(t, filepath.Join(dir, "there", "weir.yaml"), newContent)
	write(t, filepath.Join(dir, "weir.yaml"), oldContent)
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, filepath.Join(dir, "link")+"/../weir.yaml", nil)
		assert.NoError(t, k.watch.Reload(t.Context()))
		k.expect([]string{newContent}, nil)
	})
}

func TestSignalLoadsWhatHasNotChanged(t *testing.T) {
	var signals chan os.Signal
	withSignals := func(_ *keeper, o *filewatch.Options) {
		signals = make(chan os.Signal, 1)
		o.Signals = signals
	}
	watching(t, oldContent, withSignals, func(t *testing.T, k *keeper) {
		signals <- os.Interrupt
		k.until(1500 * time.Millisecond)
		k.expect([]string{oldContent}, nil)

		write(t, k.path, "bad")
		k.until(5 * time.Second)
		k.expect([]string{"bad"}, []string{"refused: bad"})
		signals <- os.Interrupt
		k.until(5500 * time.Millisecond)
		k.expect([]string{"bad"}, []string{"refused: bad"}) // there is an answer each time

		close(signals)
		write(t, k.path, newContent)
		k.until(10 * time.Second)
		k.expect([]string{newContent}, []string{""})
	})
}

// Reloads, polls, signals and a writer at the same time: never two loads at once
// (the keeper looks), and the last content ends up in force.
func TestReloadAndPollsConcurrentSafe(t *testing.T) {
	var signals chan os.Signal
	fast := func(_ *keeper, o *filewatch.Options) {
		signals = make(chan os.Signal, 1)
		o.Interval, o.Settle, o.Signals = time.Millisecond, time.Millisecond, signals
	}
	watching(t, oldContent, fast, func(t *testing.T, k *keeper) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 20 {
					assert.NoError(t, k.watch.Reload(t.Context()))
					assert.NoError(t, k.watch.Problem())
				}
			})
		}
		group.Go(func() {
			for i := range 100 {
				content := []string{oldContent, newContent}[i%2]
				assert.NoError(t, os.WriteFile(k.path+".tmp", []byte(content), 0o600))
				assert.NoError(t, os.Rename(k.path+".tmp", k.path))
				time.Sleep(3 * time.Millisecond)
				select {
				case signals <- os.Interrupt:
				default:
				}
			}
		})
		group.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		assert.Equal(t, newContent, k.inForce)
		assert.GreaterOrEqual(t, len(k.loads), 160)
		assert.Empty(t, k.problems)
	})
}
