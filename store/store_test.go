package store_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

func TestStore_SameNameTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		o := bucketOf(10, 1, time.Hour, 0)
		a := must(s.TokenBucket("b", o, nil))(t)
		b := must(s.TokenBucket("b", o, &store.LimiterOptions{CacheRejections: true}))(t)
		w.granted(a, 4)
		w.granted(b, 6)
		w.rejected(a, 1)
		require.EqualValues(t, 1, a.Statistics().SuccessfulLeases, "they are like those of two instances")
		require.NoError(t, a.Reconfigure(bucketOf(11, 1, time.Hour, 0)))
		w.granted(b, 1)
		require.NoError(t, a.Close())
		_, err := a.TryAcquire(w.ctx, 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
		w.rejected(b, 1)
		keyed := must(s.PartitionedTokenBucket("b", bucketOf(20, 1, time.Hour, 0), nil))(t) // a program that was deployed later
		lease := must(keyed.TryAcquire(w.ctx, "key", 20))(t)
		require.True(t, lease.Acquired(), "keys are others than no key")
	})
}

func TestLimiter_PermitsOutOfRange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, k := range kinds {
			calls, decisions := w.Calls("Decide", "Acquire", "Load", "Define"), w.Calls("Decide", "Acquire")
			s := w.instance(store.Options{})
			l := build(t, s, k, limitsOfTen, nil)
			refused := func(n int) {
				_, err := l.TryAcquire(w.ctx, n)
				require.ErrorIs(t, err, limiter.ErrPermitCount)
				_, err = l.Acquire(w.ctx, n)
				require.ErrorIs(t, err, limiter.ErrPermitCount)
			}
			never := []int{-1, math.MinInt}
			if math.MaxInt > math.MaxInt32 { // where an int has 32 bits, each could be a limit
				never = append(never, math.MaxInt)
			}
			for _, n := range never {
				refused(n)
			}
			require.NoError(t, s.Close())
			require.Equal(t, calls, w.Calls("Decide", "Acquire", "Load", "Define"), "the store was not asked, also not by Close")
			s = w.instance(store.Options{})
			l = build(t, s, k, limitsOfTen, nil)
			refused(11)
			synctest.Wait()
			require.Equal(t, decisions, w.Calls("Decide", "Acquire"), "only the limits were asked for")
			require.NoError(t, s.Close())
		}
	})
}

func TestLimiter_AfterClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.TokenBucket("b", bucketOf(10, 1, time.Hour, 5), nil))(t)
		p := must(s.PartitionedConcurrency("c", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t)
		lease := w.granted(l, 4)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { require.NoError(w, s.Close()) })
		}
		wg.Wait()
		require.NoError(t, s.Close())
		require.NoError(t, l.Close())
		require.Equal(t, 1, w.Calls("Close"))
		calls := w.Calls()
		_, err := l.TryAcquire(w.ctx, 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
		_, err = p.Acquire(w.ctx, "key", 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
		require.ErrorIs(t, l.Reconfigure(bucketOf(1, 1, time.Hour, 0)), limiter.ErrClosed)
		_, err = s.TokenBucket("d", bucketOf(1, 1, time.Hour, 0), nil)
		require.ErrorIs(t, err, limiter.ErrClosed)
		require.Equal(t, limiter.Statistics{AvailablePermits: 6, SuccessfulLeases: 1}, l.Statistics())
		lease.Adjust(1)
		lease.Release()
		w.pass(time.Minute)
		require.Equal(t, calls, w.Calls())
	})
}

// Close waits for releases and refunds, but not for a store that does not answer.
func TestClose_GivesBackUndelivered(t *testing.T) {
	for round := range 40 {
		inWorld(t, func(t *testing.T, w *world) {
			for kind, limited := range map[string]func(*store.Store) limiter.Limiter{
				"seats": func(s *store.Store) limiter.Limiter {
					return must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}, nil))(t)
				},
				"window": func(s *store.Store) limiter.Limiter {
					return must(s.FixedWindow("window", limiter.FixedWindowOptions{PermitLimit: 1, Window: 10 * time.Millisecond, QueueLimit: 1}, nil))(t)
				},
			} {
				s, elsewhere := w.instance(store.Options{}), w.instance(store.Options{})
				l, seen := limited(s), limited(elsewhere)
				held := w.granted(l, 1)
				ctx, leave := context.WithCancel(t.Context())
				done := make(chan limiter.Lease)
				go func() {
					lease, _ := l.Acquire(ctx, 1)
					done <- lease
				}()
				synctest.Wait()
				w.Delay(2 * time.Millisecond)
				held.Release()
				if kind == "window" {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(time.Duration(round) * 200 * time.Microsecond)
				leave()
				lease := <-done
				lease.Release()
				require.NoError(t, s.Close())
				w.Delay(0)
				if kind == "seats" || !lease.Acquired() {
					require.EqualValues(t, 1, seen.(limiter.StatisticsProvider).Statistics().AvailablePermits, kind)
				}
			}
		})
	}
}

func TestClose_WaitsUntilIdle(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.TokenBucket("b", bucketOf(10, 1, time.Hour, 5), nil))(t)
		seats := must(s.Concurrency("c", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t)
		lease, held := w.granted(l, 10), w.granted(seats, 10)
		w.Delay(100 * time.Millisecond)
		held.Release()
		lease.Adjust(0)
		require.NoError(t, s.Close())
		w.Delay(0)
		elsewhere := w.instance(store.Options{})
		w.granted(must(elsewhere.TokenBucket("b", bucketOf(10, 1, time.Hour, 5), nil))(t), 10)
		w.granted(must(elsewhere.Concurrency("c", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t), 10)
	})
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			w.granted(must(s.TokenBucket(name, bucketOf(10, 1, time.Hour, 5), nil))(t), 1)
		}
		w.Stall(true)
		require.LessOrEqual(t, timed(func() { require.NoError(t, s.Close()) }), 510*time.Millisecond)
	})
}

// Probe is a round trip, and counts as one.
func TestStore_Probe(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		w.Delay(100 * time.Millisecond)
		require.Equal(t, 100*time.Millisecond, timed(func() { require.NoError(t, s.Probe(w.ctx)) }))
		w.Delay(time.Hour)
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Probe(ctx), context.DeadlineExceeded)
		for range 3 {
			require.NoError(t, s.Health().Err)
			require.Equal(t, 500*time.Millisecond, timed(func() { require.Error(t, s.Probe(w.ctx)) }))
		}
		require.ErrorIs(t, s.Health().Err, store.ErrUnavailable)
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Probe(w.ctx), limiter.ErrClosed)
	})
}
