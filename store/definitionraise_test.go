package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// An instance whose callers all ask for more permits than the limit that it knows learns of a raised limit.
func TestAcquire_ChecksForARaise(t *testing.T) {
	for name, ask := range map[string]func(w *world, s *store.Store) func() (limiter.Lease, error){
		"TryAcquire": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			l := must2(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(w.T)
			use(w.T, l)
			return func() (limiter.Lease, error) { return l.TryAcquire(w.ctx, 50) }
		},
		"Acquire": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			l := must2(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 100), nil))(w.T)
			use(w.T, l)
			return func() (limiter.Lease, error) { return l.Acquire(w.ctx, 50) }
		},
		"partitioned": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			p := must2(s.PartitionedTokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(w.T)
			require.True(w, must2(p.TryAcquire(w.ctx, "a", 1))(w.T).Acquired())
			return func() (limiter.Lease, error) { return p.TryAcquire(w.ctx, "b", 50) }
		},
		"not used before": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			l := must2(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(w.T)
			return func() (limiter.Lease, error) { return l.TryAcquire(w.ctx, 50) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.bucket(10, 1, time.Hour, 0, nil)
				use(t, a)
				call := ask(w, w.instance(store.Options{NoListen: true, RefreshInterval: time.Hour}))
				time.Sleep(2 * time.Second)
				require.NoError(t, a.Reconfigure(bucketOf(100, 1, time.Hour, 0)))
				lease, err := call()
				require.NoError(t, err)
				require.True(t, lease.Acquired())
			})
		})
	}
}

// Callers who want too much ask the store together, once a second at most, and not while it is away.
func TestAcquire_RaiseChecksAreShared(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := must2(w.instance(store.Options{NoListen: true, RefreshInterval: time.Hour}).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		use(t, l)
		w.Delay(100 * time.Millisecond)
		calls := w.Calls()
		flood := func() {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					for range 20 {
						_, err := l.TryAcquire(w.ctx, 11)
						assert.ErrorIs(t, err, limiter.ErrPermitCount)
					}
				})
			}
			all.Wait()
		}
		flood()
		require.Equal(t, 1, w.Calls()-calls)
		time.Sleep(2 * time.Second)
		flood()
		require.Equal(t, 2, w.Calls()-calls)
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
		defer cancel()
		_, err := l.TryAcquire(ctx, 11)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		w.hook(func(string) error { return errors.New("away") }, nil)
		for range 3 {
			w.try(l, 1)
		}
		time.Sleep(500 * time.Millisecond)
		require.Zero(t, timed(func() {
			_, err = l.TryAcquire(w.ctx, 11)
			require.ErrorIs(t, err, limiter.ErrPermitCount, "the store is away")
		}))
	})
}
