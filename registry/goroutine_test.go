package registry_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// A build function that goes round the Builder gets an error, and does not hang.
func TestGet_OnTheGoroutineOfItsBuild(t *testing.T) {
	r := open(t, nil)
	asking := func(name string) registry.BuildFunc {
		return func(b *registry.Builder) error {
			p, err := r.Get(name)
			if err == nil {
				b.Add(pipeline.Embed(p))
			}
			return err
		}
	}
	require.NoError(t, r.Define("itself", asking("itself")))
	require.NoError(t, r.Define("a", asking("b")))
	require.NoError(t, r.Define("b", asking("c")))
	require.NoError(t, r.Define("c", asking("a")))
	require.NoError(t, r.Define("outer", asking("inner")))
	require.NoError(t, r.Define("inner", with()))
	for _, name := range []string{"itself", "a", "b", "c"} {
		_, err := r.Get(name)
		require.ErrorIs(t, err, registry.ErrCycle, name)
	}
	require.NoError(t, get(t, r, "outer").Execute(t.Context(), nothing))
	_, err := r.Get("a")
	require.ErrorIs(t, err, registry.ErrCycle, "nothing is left of the first time")
}

func TestReload_OnTheGoroutineOfAReload(t *testing.T) {
	var r *registry.Registry
	var heard error
	r = open(t, &registry.Options{Listener: pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
		if e.Name == registry.EventReload {
			heard = r.Reload(ctx)
		}
	})})
	var built error
	first := true
	require.NoError(t, r.Define("orders", func(*registry.Builder) error {
		if !first {
			built = r.Reload(context.Background())
		}
		first = false
		return nil
	}))
	get(t, r, "orders")
	require.NoError(t, r.Reload(t.Context()))
	require.ErrorIs(t, built, registry.ErrReloading)
	require.ErrorIs(t, heard, registry.ErrReloading)
	require.NoError(t, r.Reload(t.Context()), "the next one is none the worse for it")
}

// A first build that asks for itself on another goroutine waits until the registry is closed.
func TestGet_ByAFirstBuildOnAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			done := make(chan error)
			go func() { _, err := r.Get("orders"); done <- err }()
			return <-done
		}))
		got := make(chan error)
		go func() { _, err := r.Get("orders"); got <- err }()
		synctest.Wait()
		require.NoError(t, r.Close(t.Context()))
		require.ErrorIs(t, <-got, registry.ErrClosed)
	})
}

func TestReload_ByAFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var errs []error
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			errs = append(errs, r.Reload(context.Background()), r.Remove(context.Background(), "orders"))
			return nil
		}))
		get(t, r, "orders")
		require.Len(t, errs, 2)
		for _, err := range errs {
			require.ErrorIs(t, err, registry.ErrReloading)
		}
	})
}

// On another goroutine it cannot be seen, but it ends.
func TestReload_ByAFirstBuildOnAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var mu sync.Mutex
		var errs []error
		builds := 0
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			done := make(chan error)
			go func() { done <- r.Reload(context.Background()) }()
			err := <-done
			mu.Lock()
			defer mu.Unlock()
			builds++
			errs = append(errs, err)
			return nil
		}))
		began := time.Now()
		get(t, r, "orders")
		assert.LessOrEqual(t, time.Since(began), 30*time.Second)
		mu.Lock()
		assert.LessOrEqual(t, builds, 5)
		mu.Unlock()
		require.ErrorIs(t, errors.Join(errs...), registry.ErrReloading)
	})
}
