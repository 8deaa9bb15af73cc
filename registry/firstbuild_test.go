package registry_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

func TestGet_BuildsOnceConcurrentSafe(t *testing.T) {
	r := open(t, nil)
	var n numbered
	require.NoError(t, r.Define("orders", n.build))
	assert.Zero(t, n.made(), "nothing is built before Get")

	handles := make([]*pipeline.Pipeline, 200)
	var wg sync.WaitGroup
	for i := range handles {
		wg.Go(func() {
			p, err := r.Get("orders")
			assert.NoError(t, err)
			assert.NoError(t, p.Execute(t.Context(), nothing))
			handles[i] = p
		})
	}
	wg.Wait()
	assert.Equal(t, 1, n.made())
	for _, p := range handles {
		assert.Same(t, handles[0], p)
	}
}

// outcome is what a Get came back with.
type outcome struct {
	p   *pipeline.Pipeline
	err error
}

// stampede has n goroutines ask for a pipeline whose build waits, and returns what
// they got once release has let it go on.
func stampede(r *registry.Registry, n int, release func()) []outcome {
	outcomes := make([]outcome, n)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() { outcomes[i].p, outcomes[i].err = r.Get("orders") })
	}
	synctest.Wait()
	release()
	wg.Wait()
	return outcomes
}

func TestGet_FailedBuildIsTriedAgain(t *testing.T) {
	fail := map[string]func() error{
		"error": func() error { return errBoom },
		"panic": func() error { panic(errBoom.Error()) },
	}
	for name, f := range fail {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := open(t, nil)
				release := make(chan struct{})
				var builds atomic.Int64
				require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
					if builds.Add(1) == 1 {
						<-release
						return f()
					}
					b.Add(version(2))
					return nil
				}))
				for _, o := range stampede(r, 10, func() { close(release) }) {
					assert.Nil(t, o.p)
					assert.ErrorContains(t, o.err, "boom")
					assert.ErrorContains(t, o.err, "orders")
				}
				assert.EqualValues(t, 1, builds.Load())

				assert.Equal(t, 2, versionOf(t, get(t, r, "orders")))
				assert.EqualValues(t, 2, builds.Load())
			})
		})
	}
}

// A build that calls runtime.Goexit ends the goroutine that called Get, and no other.
func TestGet_GoexitInFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		release := make(chan struct{})
		var builds, back atomic.Int64
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			if builds.Add(1) == 1 {
				b.OnDispose(func() error { back.Add(1); return nil })
				<-release
				runtime.Goexit()
			}
			return nil
		}))
		failed := 0
		for _, o := range stampede(r, 5, func() { close(release) }) {
			assert.Nil(t, o.p)
			if o.err != nil {
				failed++
			}
		}
		assert.Equal(t, 4, failed, "all but the one that is gone")
		assert.EqualValues(t, 1, builds.Load())
		assert.EqualValues(t, 1, back.Load(), "OnDispose of the build")
		require.NoError(t, get(t, r, "orders").Execute(t.Context(), nothing))
	})
}

func TestGet_GoexitInSecondTryOfFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		release := make(chan struct{})
		var builds atomic.Int64
		require.NoError(t, r.Define("orders", func(*registry.Builder) error {
			switch builds.Add(1) {
			case 1:
				<-release
			case 2:
				runtime.Goexit()
			}
			return nil
		}))
		failed := 0
		for _, o := range stampede(r, 5, func() {
			require.NoError(t, r.Reload(t.Context()), "makes the build that runs out of date")
			close(release)
		}) {
			assert.Nil(t, o.p)
			if o.err != nil {
				failed++
			}
		}
		assert.Equal(t, 4, failed)
		require.NoError(t, get(t, r, "orders").Execute(t.Context(), nothing))
	})
}

func TestGet_InvalidStrategies(t *testing.T) {
	r := open(t, nil)
	var j journal
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		b.OnDispose(j.note("OnDispose 1", nil))
		b.OnDispose(j.note("OnDispose 2", nil))
		b.Add(&closing{j.note("close 1", nil)}, nil, &invalid{closing{j.note("close 2", nil)}})
		return nil
	}))
	_, err := r.Get("orders")
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.ErrorIs(t, err, errBoom)
	assert.ErrorContains(t, err, "Strategies[1] must not be nil")
	assert.Equal(t, []string{"OnDispose 2", "OnDispose 1", "close 1", "close 2"}, j.take())
}

func TestOnDispose_Nil(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error { b.OnDispose(nil); return nil }))
	_, err := r.Get("orders")
	assert.ErrorContains(t, err, "OnDispose")
}

// A first build that takes long must not publish what it read before a reload.
func TestGet_FirstBuildDuringReloadRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var config, builds atomic.Int64
		config.Store(1)
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			builds.Add(1)
			read := config.Load()
			time.Sleep(time.Second)
			b.Add(version(read))
			return nil
		}))
		for _, o := range stampede(r, 3, func() {
			config.Store(2)
			require.NoError(t, r.Reload(t.Context(), "orders"))
		}) {
			require.NoError(t, o.err)
			assert.Equal(t, 2, versionOf(t, o.p))
		}
		assert.EqualValues(t, 2, builds.Load())
	})
}

// A nil pointer among the strategies is named, and nothing is called on it.
func TestGet_NilPointerAsStrategy(t *testing.T) {
	var l recorder
	r := open(t, &registry.Options{Listener: &l})
	require.NoError(t, r.Define("orders", with((*closing)(nil))))
	_, err := r.Get("orders")
	assert.EqualError(t, err, "registry: building pipeline orders: pipeline: Strategies[0] must not be nil")
	assert.Empty(t, l.take())
}

// A build takes longer than the time between two reloads.
func TestGet_WhileReloadsKeepComing(t *testing.T) {
	for _, failing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, nil)
			require.NoError(t, r.Define("fails", func(*registry.Builder) error { return nil }))
			if failing {
				built := false
				require.NoError(t, r.Apply(t.Context(), registry.Change{Define: builds{"fails": func(*registry.Builder) error {
					if built {
						return errBoom
					}
					built = true
					return nil
				}}}))
			}
			var config atomic.Int64
			require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
				read := config.Load()
				time.Sleep(20 * time.Millisecond)
				b.Add(version(read))
				return nil
			}))
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
						config.Add(1)
						_ = r.Reload(t.Context())
					}
				}
			})
			began := time.Now()
			p := get(t, r, "orders")
			assert.Less(t, time.Since(began), 200*time.Millisecond)
			close(stop)
			wg.Wait()
			if !failing {
				require.EqualValues(t, config.Load(), versionOf(t, p), "the last reload counts")
			}
		})
	}
}

// A reload builds an instance itself whose first build takes too long. If the first build then fails, the instance is
// forgotten, and so is what the reload has built of it.
func TestGetInstance_FirstBuildFailsWhileAReloadBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		var calls atomic.Int64
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			if b.Instance == "" {
				return nil
			}
			b.Concurrency("l", one(1))
			n := calls.Add(1)
			time.Sleep(time.Second)
			if n == 3 {
				return errBoom
			}
			return nil
		}))
		get(t, r, "orders")
		failed := make(chan error)
		go func() {
			_, err := r.GetInstance("orders", "eu")
			failed <- err
		}()
		time.Sleep(time.Second / 2)
		for range 3 { // in the middle of the first, the second and the third run of the first build
			require.NoError(t, r.Reload(t.Context()))
			if calls.Load() < 4 {
				time.Sleep(time.Second)
			}
		}
		require.ErrorIs(t, <-failed, errBoom)
		assert.EqualValues(t, 4, calls.Load())
		assert.Zero(t, r.OwnedLimiters(), "nothing has it")
		getInstance(t, r, "orders", "eu")
		assert.EqualValues(t, 5, calls.Load())
	})
}
