package filewatch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload/internal/filewatch"
)

// The options of a keeper, unless a test sets others.
const (
	interval = 2 * time.Second
	settle   = 200 * time.Millisecond
)

var errBoom = errors.New("boom")

// A keeper is who has a file watched: it keeps what it was given and told. Like a
// strict decoder it refuses what does not end in a full stop; unlike one it says
// what it was.
type keeper struct {
	t     *testing.T
	began time.Time
	path  string
	watch *filewatch.Watcher
	fail  func(content string) error // called in addition; set before it runs

	mu       sync.Mutex
	failure  error
	loading  bool
	inForce  string
	loads    []string
	at       []time.Duration // when each of them was, since the start
	problems []string        // "" where there is none any more
}

func (k *keeper) load(_ context.Context, content []byte) error {
	k.mu.Lock()
	assert.False(k.t, k.loading, "two at a time")
	k.loading = true
	k.loads = append(k.loads, string(content))
	k.at = append(k.at, time.Since(k.began))
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.loading = false
	}()

	if !strings.HasSuffix(string(content), ".") {
		return filewatch.Permanent(errors.New("refused: " + string(content)))
	}
	if k.fail != nil {
		if err := k.fail(string(content)); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure != nil {
		return k.failure
	}
	k.inForce = string(content)
	return nil
}

// failWith makes everything fail from now on; nil: nothing.
func (k *keeper) failWith(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

func (k *keeper) ended(r filewatch.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !r.Log:
	case r.Err == nil:
		k.problems = append(k.problems, "")
	default:
		k.problems = append(k.problems, strings.ReplaceAll(r.Err.Error(), k.path, "FILE"))
	}
}

// newKeeper makes one for a path; change, which may be nil, gets the options.
func newKeeper(t *testing.T, path string, change func(*keeper, *filewatch.Options)) *keeper {
	t.Helper()
	k := &keeper{t: t, began: time.Now(), path: path}
	o := filewatch.Options{Path: path, Interval: interval, Settle: settle, Load: k.load, Ended: k.ended}
	if change != nil {
		change(k, &o)
	}
	var err error
	k.watch, err = filewatch.New(o)
	require.NoError(t, err)
	return k
}

// run watches until the test, in its bubble, is over.
func (k *keeper) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.ErrorIs(k.t, k.watch.Run(ctx), context.Canceled)
	}()
	k.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// until sleeps until so long after the start, and past all that is due then.
func (k *keeper) until(d time.Duration) {
	time.Sleep(d - time.Since(k.began))
	synctest.Wait()
}

// expect compares all that the keeper was given and told with what is expected,
// and forgets it.
func (k *keeper) expect(loads, problems []string) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	assert.Equal(k.t, loads, k.loads, "loads")
	assert.Equal(k.t, problems, k.problems, "problems")
	k.loads, k.problems, k.at = nil, nil, nil
}

func (k *keeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loads, k.problems, k.at = nil, nil, nil
}

// watching runs f in a bubble, with a keeper that watches a file with that
// content, or none for "". It has polled once, and the next polls are about two
// seconds apart.
func watching(t *testing.T, content string, change func(*keeper, *filewatch.Options), f func(t *testing.T, k *keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		if content != "" {
			write(t, path, content)
		}
		k := newKeeper(t, path, change)
		k.run()
		k.until(time.Second)
		if content != "" && strings.HasSuffix(content, ".") {
			k.expect([]string{content}, nil)
		}
		f(t, k)
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
