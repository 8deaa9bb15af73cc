package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A broken backend has a state with a too large version at the key "bad".
type broken struct {
	*hooked
	version int64
}

func (b *broken) Decide(ctx context.Context, batches []*backend.Batch) error {
	err := b.hooked.Decide(ctx, batches)
	for _, batch := range batches {
		if batch.Key == "bad" {
			batch.Outcome, batch.Version, batch.Granted = backend.OutdatedDefinition, b.version, nil
		}
	}
	return err
}

func (b *broken) Acquire(ctx context.Context, holds []*backend.LeaseRequest) error {
	err := b.hooked.Acquire(ctx, holds)
	for _, h := range holds {
		if h.Key == "bad" {
			h.Outcome, h.OK, h.Version = backend.OutdatedDefinition, false, b.version
		}
	}
	return err
}

// If the state of a key has an impossible version, only that key has an error.
func TestAwaitVersion_ImpossibleVersion(t *testing.T) {
	year2223 := int64(8e15)
	for name, make := range map[string]func(s *store.Store) (l limiter.Partitioned[string], reconfigure func() error){
		"windows": func(s *store.Store) (limiter.Partitioned[string], func() error) {
			p, _ := s.PartitionedFixedWindow("x", limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}, nil)
			return p, func() error { return p.Reconfigure(limiter.FixedWindowOptions{PermitLimit: 11, Window: time.Hour}) }
		},
		"seats": func(s *store.Store) (limiter.Partitioned[string], func() error) {
			p, _ := s.PartitionedConcurrency("x", limiter.ConcurrencyOptions{PermitLimit: 10}, nil)
			return p, func() error { return p.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 11}) }
		},
	} {
		for _, version := range []int64{year2223, 1<<63 - 1} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					s := newStore(t, &broken{w.hooked, version}, store.Options{})
					p, reconfigure := make(s)
					ask := func(key string, n int) limiter.Lease { return must(p.TryAcquire(w.ctx, key, n))(t) }
					require.True(t, ask("good", 10).Acquired())
					before, _, err := w.Load(w.ctx, "x")
					require.NoError(t, err)
					calls := w.Calls("Load")
					for range 20 {
						reason, _ := store.OutageKey.From(ask("bad", 1))
						require.ErrorContains(t, reason, "broken")
						require.False(t, ask("good", 1).Acquired())
					}
					require.LessOrEqual(t, w.Calls("Load")-calls, 2, "the store is not asked each time")
					after, _, err := w.Load(w.ctx, "x")
					require.NoError(t, err)
					require.Equal(t, before, after)
					require.NoError(t, reconfigure())
					require.True(t, ask("good", 1).Acquired())
					require.False(t, ask("good", 1).Acquired())
					after, now, err := w.Load(w.ctx, "x")
					require.NoError(t, err)
					require.LessOrEqual(t, after.Version, max(now, before.Version+1))
					require.NoError(t, s.Health().Err)
				})
			})
		}
	}
}

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

// Callers that want too many permits share a check of the limit, at most once a second and not while the store is away.
func TestAcquire_RaiseChecksAreShared(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := must(w.instance(store.Options{NoListen: true, RefreshInterval: time.Hour}).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		use(t, l)
		time.Sleep(2 * time.Second)
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

// A forgetful backend has lost the definitions, and nothing else, until one is set again. It counts the calls of Load.
type forgetful struct {
	*hooked
	lost  atomic.Bool
	loads atomic.Int64
}

func (f *forgetful) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
	f.loads.Add(1)
	d, now, err := f.hooked.Load(ctx, name)
	if f.lost.Load() {
		d = nil
	}
	return d, now, err
}

func (f *forgetful) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
	if f.lost.CompareAndSwap(true, false) {
		d, _, err := f.Memory.Load(ctx, next.Name)
		if err != nil {
			return false, err
		}
		old = d.Version
	}
	return f.hooked.Define(ctx, old, next)
}

// All calls that find out together that the definition has changed, or that the store has lost it, share one load.
func TestAwaitVersion_CallersShareALoad(t *testing.T) {
	const distance = 100 * time.Millisecond
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				f := &forgetful{hooked: w.hooked}
				o := store.Options{NoListen: true, RefreshInterval: time.Hour, CallTimeout: 5 * time.Second}
				seats := func(limit int) limiter.ConcurrencyOptions { return limiter.ConcurrencyOptions{PermitLimit: limit} }
				p := must(newStore(t, f, o).PartitionedConcurrency("seats", seats(1), nil))(t)
				other := must(newStore(t, w.hooked, o).PartitionedConcurrency("seats", seats(1), nil))(t)
				require.True(t, must(p.TryAcquire(w.ctx, "first", 1))(t).Acquired())
				require.NoError(t, other.Reconfigure(seats(2)))
				w.Delay(distance)
				f.lost.Store(lost)
				loads := f.loads.Load()
				var all sync.WaitGroup
				all.Go(func() {
					ctx, cancel := context.WithTimeout(w.ctx, distance/10)
					defer cancel()
					assert.Equal(t, distance/10, timed(func() {
						_, err := p.TryAcquire(ctx, "hurries", 1)
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					}))
				})
				for i := range 40 {
					all.Go(func() {
						took := timed(func() {
							lease, err := p.TryAcquire(w.ctx, fmt.Sprint(i), 1)
							assert.NoError(t, err)
							assert.True(t, lease.Acquired())
						})
						assert.LessOrEqual(t, took, 8*distance)
					})
				}
				all.Wait()
				require.LessOrEqual(t, f.loads.Load()-loads, int64(3))
			})
		})
	}
}
