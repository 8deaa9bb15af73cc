package reload_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// reports keeps what a Reporter is told.
type reports []error

func (r *reports) ConfigReloaded(_ time.Time, err error) { *r = append(*r, err) }

// watched is a registry that follows a file.
type watched struct {
	registry *registry.Registry
	watcher  *reload.Watcher
	path     string
	reports  reports
	log      bytes.Buffer
}

func (w *watched) write(t *testing.T, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(w.path, []byte(content), 0o600))
}

func (w *watched) options() *reload.Options {
	return &reload.Options{
		Logger:   slog.New(slog.NewTextHandler(&w.log, nil)),
		Reporter: &w.reports,
	}
}

// watch starts with that content.
func watch(t *testing.T, content string) *watched {
	t.Helper()
	w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
	w.write(t, content)
	var err error
	w.watcher, err = reload.Start(t.Context(), w.registry, w.path, w.options())
	require.NoError(t, err)
	t.Cleanup(func() {
		w.watcher.Stop()
		assert.NoError(t, w.registry.Close(context.Background()))
	})
	return w
}

// pass lets time pass, and what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func try(p *pipeline.Pipeline) error {
	return p.Execute(context.Background(), func(context.Context) error { return nil })
}

func windows(limit int) string {
	return "pipelines: {orders: {strategies: [{rate_limiter: {fixed_window: {permit_limit: " + strconv.Itoa(limit) + ", window: 1h}}}]}}"
}

func TestWatcher_FollowsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, windows(1))
		orders, err := w.registry.Get("orders")
		require.NoError(t, err)
		require.NoError(t, try(orders))
		require.ErrorIs(t, try(orders), pipeline.ErrRejected)

		w.write(t, windows(2))
		pass(2300 * time.Millisecond)
		require.NoError(t, try(orders), "one more than before")
		require.ErrorIs(t, try(orders), pipeline.ErrRejected, "and what was taken stays taken")

		again, err := w.registry.Get("orders")
		require.NoError(t, err)
		assert.Same(t, orders, again)
		s := w.watcher.Status()
		assert.Equal(t, 2, s.Loads)
		assert.Zero(t, s.Failures)
		assert.Equal(t, []string{"orders"}, s.Pipelines)
		assert.Equal(t, reports{nil, nil}, w.reports)
		assert.Contains(t, w.log.String(), "configuration loaded")
	})
}

func TestWatcher_KeepsTheLastGoodFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, windows(1))
		orders, err := w.registry.Get("orders")
		require.NoError(t, err)

		w.write(t, "pipelines: {orders: {strategies: [{rate_limiter: {fixed_windw: {}}}]}}")
		pass(time.Hour)
		require.NoError(t, try(orders))
		s := w.watcher.Status()
		assert.Equal(t, 1, s.Failures, "what is wrong stays wrong, and is not tried again")
		wrong, ok := errors.AsType[*reload.FileError](s.Err)
		require.True(t, ok)
		assert.Equal(t, 1, wrong.Problems[0].Line)
		assert.Contains(t, w.log.String(), "configuration refused")

		w.write(t, windows(1))
		pass(3 * time.Second)
		s = w.watcher.Status()
		require.NoError(t, s.Err)
		assert.Equal(t, s.LastAttempt, s.LastLoad)
		assert.Len(t, w.reports, 3)
		require.NoError(t, w.reports[2])
	})
}

// A build that panics is tried again, and told of once: it is the same each time.
func TestWatcher_BuildPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
		o := w.options()
		o.Kinds = reload.NewKinds()
		reload.RegisterStrategy(o.Kinds, "bad", func(*registry.Builder, struct{}) (pipeline.Strategy, error) { panic("ouch") })
		w.write(t, windows(1))
		watcher, err := reload.Start(t.Context(), w.registry, w.path, o)
		require.NoError(t, err)
		defer watcher.Stop()
		w.write(t, "pipelines: {orders: {strategies: [{bad: {}}]}}")
		pass(10 * time.Minute)
		assert.Greater(t, watcher.Status().Failures, 5)
		assert.Equal(t, 1, strings.Count(w.log.String(), "what was in force stays"), w.log.String())
		assert.Contains(t, w.log.String(), "stack=")
		require.ErrorContains(t, watcher.Status().Err, "panic: ouch")
	})
}

func TestStart_MissingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
		o := w.options()
		_, err := reload.Start(t.Context(), w.registry, w.path, o)
		require.ErrorIs(t, err, os.ErrNotExist)

		o.AllowMissing = true
		watcher, err := reload.Start(t.Context(), w.registry, w.path, o)
		require.NoError(t, err)
		defer watcher.Stop()
		require.ErrorIs(t, watcher.Status().Err, os.ErrNotExist)
		_, err = w.registry.Get("orders")
		require.ErrorIs(t, err, registry.ErrNotDefined)

		w.write(t, windows(1))
		pass(3 * time.Second)
		require.NoError(t, watcher.Status().Err)
		_, err = w.registry.Get("orders")
		require.NoError(t, err)

		require.NoError(t, os.Remove(w.path))
		pass(time.Minute)
		require.ErrorIs(t, watcher.Status().Err, os.ErrNotExist)
		assert.Equal(t, []string{"orders"}, watcher.Status().Pipelines)
		w.write(t, windows(1))
		pass(3 * time.Second)
		require.NoError(t, watcher.Status().Err, "as before")
	})
}

func TestStart_PipelineDefinedByTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
		w.write(t, windows(1))
		require.NoError(t, w.registry.Define("orders", func(*registry.Builder) error { return nil }))
		_, err := reload.Start(t.Context(), w.registry, w.path, w.options())
		require.ErrorContains(t, err, "pipelines of the file are defined elsewhere already: orders")
	})
}

func TestWatcher_ReloadAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
		w.write(t, windows(1))
		o := w.options()
		o.Interval = -1
		ctx, cancel := context.WithCancel(t.Context())
		watcher, err := reload.Start(ctx, w.registry, w.path, o)
		require.NoError(t, err)
		cancel() // it was for the first load
		w.write(t, windows(2))
		pass(time.Hour)
		assert.Equal(t, 1, watcher.Status().Loads)
		require.NoError(t, watcher.Reload(t.Context()))
		assert.Equal(t, 2, watcher.Status().Loads)
		watcher.Stop()
		watcher.Stop()
	})
}

func TestStart_InvalidOptions(t *testing.T) {
	_, err := reload.Start(t.Context(), registry.New(nil), "", &reload.Options{Interval: -2, Settle: -1})
	require.EqualError(t, err, "reload: Path must be set; "+
		"Interval must be at least 1ms, 0 for 2s, or -1 for none, got -2ns; "+
		"Settle must be at least 1ms, or 0 for 200ms, got -1ns")
	_, err = reload.Start(t.Context(), registry.New(nil), "weir.yaml", &reload.Options{Interval: 2, Settle: 200})
	require.EqualError(t, err, "reload: Interval must be at least 1ms, 0 for 2s, or -1 for none, got 2ns; "+
		"Settle must be at least 1ms, or 0 for 200ms, got 200ns")
	kinds := reload.NewKinds()
	kinds.RegisterKey("", nil)
	_, err = reload.Start(t.Context(), registry.New(nil), "weir.yaml", &reload.Options{Kinds: kinds})
	require.Error(t, err)
}

// A reload keeps an override, says so, and its limits come into force at the end.
func TestWatcher_KeepsOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, windows(1))
		_, err := w.registry.Get("orders")
		require.NoError(t, err)
		inForce := func() (name string, permits int) {
			for name, l := range w.registry.Limiters() {
				return name, l.Options.Limits.Permits
			}
			return "", 0
		}
		name, _ := inForce()
		require.NoError(t, w.registry.Override(t.Context(), registry.Override{
			Limiter: name, Options: limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour},
			Until: time.Now().Add(time.Minute), By: "ann", Reason: "a sale",
		}))
		w.log.Reset()
		w.write(t, windows(2))
		pass(2300 * time.Millisecond)
		assert.Contains(t, w.log.String(), "configuration loaded")
		assert.Contains(t, w.log.String(), `level=WARN msg="a limiter is overridden, its configured limits come into force at the end" file=`)
		assert.Contains(t, w.log.String(), " limiter="+name+` until=2000-01-01T00:01:00.000Z by=ann reason="a sale"`)
		_, permits := inForce()
		assert.Equal(t, 5, permits)
		pass(time.Minute)
		_, permits = inForce()
		assert.Equal(t, 2, permits)
		w.log.Reset()
		w.write(t, windows(3))
		pass(2300 * time.Millisecond)
		assert.NotContains(t, w.log.String(), "overridden")
	})
}
