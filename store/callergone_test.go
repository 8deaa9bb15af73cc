package store_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"crypto/sha256"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// Callers who have left before their question is sent are not asked for, and what was granted
// to one who has left meanwhile is given back, or goes to a caller who waits.
func TestLimiter_CallersWhoHaveLeft(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "cached": caching, "alone": {NoCoalescing: true}} {
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
		l := w.seats(5, 100, store.Options{}, nil)
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

// A key that looks like what a long key is stored as is another key.
func TestPartitioned_KeysDoNotCollide(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := must2(w.instance(store.Options{}).PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 0), nil))(t)
		long := strings.Repeat("x", 300)
		sum := sha256.Sum256([]byte(long))
		seen := map[string]bool{}
		w.see = func(all []*backend.Batch) {
			for _, b := range all {
				require.LessOrEqual(t, len(b.Key), 200)
				seen[b.Key] = true
			}
		}
		keys := []string{long, "sha256:" + string(sum[:])}
		again := sha256.Sum256([]byte(keys[1]))
		keys = append(keys, "sha256:"+string(again[:]), "sha256:", strings.Repeat("y", 200))
		for _, key := range keys {
			lease, err := l.TryAcquire(w.ctx, key, 1)
			require.NoError(t, err)
			require.True(t, lease.Acquired(), "%q has a permit of its own", key)
		}
		require.Len(t, seen, len(keys))
	})
}

// OnEvent may do anything: the next events come all the same, and Close does not wait for it.
func TestOptions_OnEventMisbehaves(t *testing.T) {
	for name, misbehave := range map[string]func(stop chan struct{}){
		"panics": func(chan struct{}) { panic("OnEvent") },
		"Goexit": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []store.EventKind
				memory := newMemory()
				s := aStore(t, memory, store.Options{FailureThreshold: 1, OnEvent: func(e store.Event) {
					told = append(told, e.Kind)
					misbehave(nil)
				}})
				l := must2(s.TokenBucket("it", bucketOf(1, 1, time.Hour, 0), nil))(t)
				memory.Fail(errors.New("away"))
				_, _ = l.TryAcquire(t.Context(), 1)
				synctest.Wait()
				memory.Fail(nil)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Equal(t, []store.EventKind{store.EventStoreLost, store.EventStoreRecovered}, told)
			})
		})
	}
	t.Run("blocks, and closes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			memory := newMemory()
			var s *store.Store
			s = aStore(t, memory, store.Options{FailureThreshold: 1, OnEvent: func(store.Event) {
				_ = s.Close()
				<-stop
			}})
			l := must2(s.TokenBucket("it", bucketOf(1, 1, time.Hour, 0), nil))(t)
			memory.Fail(errors.New("away"))
			_, _ = l.TryAcquire(t.Context(), 1)
			synctest.Wait()
			require.NoError(t, s.Close())
			close(stop)
		})
	})
}

// A backend that panics, or ends the goroutine that asks it, has not answered, and no more.
func TestStore_BackendMisbehaves(t *testing.T) {
	for name, misbehave := range map[string]func(){"panics": func() { panic("backend") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := w.instance(store.Options{FailureThreshold: 1000})
				bucket := must2(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
				seats := must2(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t)
				w.granted(bucket, 1)
				held := w.granted(seats, 1)
				w.hook(func(string) error { misbehave(); return nil }, nil)
				require.Equal(t, limiter.ReasonUnavailable, w.rejected(bucket, 1).Reason())
				require.Equal(t, limiter.ReasonUnavailable, w.rejected(seats, 1).Reason())
				held.Release()
				w.pass(time.Second)
				w.hook(nil, nil)
				w.granted(bucket, 1)
				w.granted(seats, 1)
			})
		})
	}
}

// Keys beyond the bound are answered by the store, and nothing is remembered of them.
func TestPartitioned_RememberedKeysAreBounded(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"cached": caching, "lent": {Block: 10}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := must2(w.instance(store.Options{}).PartitionedTokenBucket("it", bucketOf(1, 1, time.Hour, 10), how))(t)
				store.PretendKeys(l, 100_000)
				for _, want := range []bool{true, false} {
					lease, err := l.TryAcquire(w.ctx, "new", 1)
					require.NoError(t, err)
					require.Equal(t, want, lease.Acquired())
				}
				lease, err := l.Acquire(w.ctx, "new", 1)
				require.NoError(t, err)
				require.Equal(t, limiter.ReasonQueueLimit, lease.Reason())
				store.PretendKeys(l, -100_000)
			})
		})
	}
}

// A caller whose context ends before the store has answered gets an error that says so. One who has waited in the queue
// does not.
func TestLimiter_Undecided(t *testing.T) {
	undecided := func(err error) bool {
		var u interface{ Undecided() bool }
		return errors.As(err, &u) && u.Undecided()
	}
	makers := map[string]func(t *testing.T, s *store.Store) limiter.Limiter{
		"leases": func(t *testing.T, s *store.Store) limiter.Limiter {
			return must2(s.Concurrency("it", limiter.ConcurrencyOptions{PermitLimit: 5, QueueLimit: 5}, nil))(t)
		},
	}
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "lent": {Block: 5}, "at once": {NoCoalescing: true}} {
		makers[name] = func(t *testing.T, s *store.Store) limiter.Limiter {
			return must2(s.TokenBucket("it", bucketOf(5, 1, time.Hour, 5), how))(t)
		}
	}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := make(t, aStore(t, w.Memory, store.Options{NoListen: true}))
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
