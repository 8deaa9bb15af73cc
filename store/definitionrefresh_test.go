package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// An instance whose callers all want more permits than the known limit learns of a raised limit.
func TestAcquire_ChecksForARaise(t *testing.T) {
	for name, ask := range map[string]func(w *world, s *store.Store) func() (limiter.Lease, error){
		"TryAcquire": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			l := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(w.T)
			use(w.T, l)
			return func() (limiter.Lease, error) { return l.TryAcquire(w.ctx, 50) }
		},
		"Acquire": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			l := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 100), nil))(w.T)
			use(w.T, l)
			return func() (limiter.Lease, error) { return l.Acquire(w.ctx, 50) }
		},
		"partitioned": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			p := must(s.PartitionedTokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(w.T)
			require.True(w, must(p.TryAcquire(w.ctx, "a", 1))(w.T).Acquired())
			return func() (limiter.Lease, error) { return p.TryAcquire(w.ctx, "b", 50) }
		},
		"not used before": func(w *world, s *store.Store) func() (limiter.Lease, error) {
			l := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(w.T)
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

// A caller does not wait for the check longer than its context allows, and not at all while the store is away.
func TestAcquire_RaiseCheckTakesNoTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(l, 1)
		time.Sleep(2 * time.Second)
		w.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
		defer cancel()
		_, err := l.TryAcquire(ctx, 11)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.hooked.Fail(errDead)
		for range 3 {
			w.try(l, 1)
		}
		time.Sleep(2 * time.Second)
		require.Zero(t, timed(func() {
			_, err = l.TryAcquire(w.ctx, 11)
			require.ErrorIs(t, err, limiter.ErrPermitCount)
		}))
	})
}

// Without notices, waiting callers learn of a raise at another instance, too.
func TestAcquire_LimitRaisedElsewhereWithoutListening(t *testing.T) {
	for name, cut := range map[string]bool{"NoListen": false, "unsupported": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				hour := func(limit int) limiter.FixedWindowOptions {
					return limiter.FixedWindowOptions{PermitLimit: limit, Window: time.Hour, QueueLimit: 5}
				}
				a := must(w.instance(store.Options{}).FixedWindow("it", hour(10), nil))(t)
				w.granted(a, 10)
				w.NoListen(cut)
				b := must(w.instance(store.Options{NoListen: !cut}).FixedWindow("it", hour(10), nil))(t)
				w.rejected(b, 1)
				waiting := w.acquire(b, 1)
				w.waits(waiting)
				require.NoError(t, a.Reconfigure(hour(100)))
				calls := w.Calls("Load")
				w.pass(11 * time.Second)
				w.served(waiting)
				require.LessOrEqual(t, waiting.took, 11*time.Second)
				require.LessOrEqual(t, w.Calls("Load")-calls, 4)
			})
		})
	}
}

// While the store is away, waiting callers do not load the limits.
func TestAcquire_NoRefreshWhileTheStoreIsAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(4, 1, time.Hour, 5, &store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.25})
		w.granted(l, 4)
		first, second := w.acquire(l, 1), w.acquire(l, 1)
		w.hooked.Fail(errDead)
		w.pass(time.Hour + time.Minute)
		require.Len(t, w.events.of(store.EventStoreLost), 1)
		calls := w.Calls("Load")
		w.pass(time.Hour)
		w.served(first)
		w.waits(second)
		require.Equal(t, calls, w.Calls("Load"))
		w.hooked.Fail(nil)
		w.pass(time.Hour)
		w.served(second)
	})
}
