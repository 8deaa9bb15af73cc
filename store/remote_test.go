package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// The store is not asked for callers that have left before the call. What was granted to callers that leave during it
// is given back or goes to a waiting caller.
func TestLimiter_CallersWhoHaveLeft(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "cached": caching} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := w.bucket(50, 1, time.Hour, 100, how)
				w.granted(l, 0)
				w.Delay(20 * time.Millisecond)
				for i := range 30 {
					ctx, cancel := context.WithTimeout(w.ctx, time.Duration(i%15)*time.Millisecond)
					defer cancel()
					go func() {
						lease, err := l.Acquire(ctx, 1)
						assert.Error(t, err)
						assert.False(t, lease.Acquired())
					}()
				}
				w.pass(time.Second)
				w.Delay(0)
				require.EqualValues(t, 50, l.Statistics().AvailablePermits)
				w.granted(l, 50)
			})
		})
	}
}

func TestPartitioned_CallersOfLeasesWhoHaveLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.concurrency(5, 100, store.Options{}, nil)
		w.granted(l, 0)
		w.Delay(20 * time.Millisecond)
		for i := range 30 {
			ctx, cancel := context.WithTimeout(w.ctx, time.Duration(i%15)*time.Millisecond)
			defer cancel()
			go func() { _, _ = l.Acquire(ctx, 1) }()
		}
		w.pass(time.Second)
		w.Delay(0)
		require.EqualValues(t, 5, l.Statistics().AvailablePermits)
	})
}

// The error of a caller whose context ends before the store has answered is undecided. That of a caller that has waited
// in the queue is not.
func TestLimiter_Undecided(t *testing.T) {
	undecided := func(err error) bool {
		var u interface{ Undecided() bool }
		return errors.As(err, &u) && u.Undecided()
	}
	makers := map[string]func(t *testing.T, s *store.Store) limiter.Limiter{
		"leases": func(t *testing.T, s *store.Store) limiter.Limiter {
			return must(s.Concurrency("it", limiter.ConcurrencyOptions{PermitLimit: 5, QueueLimit: 5}, nil))(t)
		},
	}
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "blocks": {Block: 5}} {
		makers[name] = func(t *testing.T, s *store.Store) limiter.Limiter {
			return must(s.TokenBucket("it", bucketOf(5, 1, time.Hour, 5), how))(t)
		}
	}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := make(t, newStore(t, w.Memory, store.Options{NoListen: true}))
				soon := func() context.Context {
					ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("too late"))
					t.Cleanup(cancel)
					return ctx
				}
				for _, known := range []bool{false, true} {
					if known {
						w.granted(l, 0)
					}
					w.Stall(true)
					for _, ask := range []func(context.Context, int) (limiter.Lease, error){l.TryAcquire, l.Acquire} {
						_, err := ask(soon(), 1)
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.EqualError(t, err, "context deadline exceeded: too late")
						require.True(t, undecided(err), "the store has not answered")
					}
					w.Stall(false)
					w.pass(2 * time.Second)
				}
				w.granted(l, 5)
				_, err := l.Acquire(soon(), 1)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.False(t, undecided(err), "the store has answered that there are no permits")
			})
		})
	}
}

// A caller waits for CallTimeout in all, also if it asks a second time: after what this instance gives back, or after a block that
// was borrowed for others.
func TestLimiter_AskingTwiceWithinCallTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		lease := w.granted(l, 10)
		w.Delay(300 * time.Millisecond)
		var calls atomic.Int32
		w.hook(func(string) error {
			if calls.Add(1) == 1 {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}, nil)
		lease.Refund()
		synctest.Wait()
		require.Equal(t, 500*time.Millisecond, timed(func() { w.rejected(l, 10) }), "the second answer comes too late")
	})
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(100, 1, time.Hour, 0, &store.LimiterOptions{Block: 10})
		for range 40 {
			w.granted(l, 1)
		}
		w.Delay(400 * time.Millisecond)
		for calls := w.Calls("Decide"); w.Calls("Decide") == calls; synctest.Wait() {
			go func() { _, _ = l.TryAcquire(w.ctx, 1) }() // until one borrows a block
			synctest.Wait()
		}
		require.Equal(t, 500*time.Millisecond, timed(func() {
			require.Equal(t, limiter.ReasonUnavailable, w.rejected(l, 50).Reason())
		}))
	})
}
