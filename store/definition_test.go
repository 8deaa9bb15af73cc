package store_test

import (
	"context"
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
	"github.com/weir-go/weir/store/storetest"
)

// If the store has lost everything, the instance with the newest limits sets them again, even if the store's clock has
// stepped back.
func TestDefinition_StoreRestartedEmpty(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Hour, time.Hour} {
		for _, kind := range []string{"bucket", "seats"} {
			t.Run(step.String()+" "+kind, subtest(func(t *testing.T, w *world) {
				a, b := w.bucket(10, 1, time.Minute, 0, nil), w.bucket(10, 1, time.Minute, 0, nil)
				w.granted(a, 5)
				w.granted(b, 1)
				require.NoError(t, a.Reconfigure(bucketOf(8, 1, time.Minute, 0)))
				synctest.Wait()
				w.Forget()
				w.Step(step)
				w.granted(a, 3)
				w.granted(b, 3)
				w.pass(11 * time.Second)
				w.granted(a, 1)
				synctest.Wait()
				c := w.bucket(8, 1, time.Minute, 0, nil) // a program that starts now
				w.granted(c, 1)
				w.rejected(a, 1)
				w.rejected(b, 1)
				w.rejected(c, 1)
				w.pass(11 * time.Second)
				for _, l := range []*store.Limiter{a, b, c} {
					w.rejected(l, 1)
					require.Equal(t, 8, l.Limits().Permits)
				}
			}))
		}
	}
}

// The limiter that was used or reconfigured last decides the kind of a name. If only one of two kinds is a concurrency
// limiter, the other limiter answers by its outage policy until the definition is of its kind again.
func TestReconfigure_AnotherKindByTheSameName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bucket := must(w.instance(store.Options{}).TokenBucket("it", bucketOf(10, 1, time.Hour, 0), nil))(t)
		w.granted(bucket, 1)
		window := must(w.instance(store.Options{}).FixedWindow("it", limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}, nil))(t)
		w.granted(window, 1)
		synctest.Wait()
		require.Equal(t, limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}.Limits(), bucket.Limits(), "those in force")
		w.granted(bucket, 3)
		w.rejected(window, 1)
		seats := must(w.instance(store.Options{}).Concurrency("it", limiter.ConcurrencyOptions{PermitLimit: 2}, nil))(t)
		for range 3 {
			w.granted(seats, 2).Release()
			synctest.Wait()
			calls := w.Calls()
			for _, l := range []limiter.Limiter{bucket, window} {
				reason, _ := store.OutageKey.From(w.rejected(l, 1))
				require.ErrorContains(t, reason, "here and a concurrency in the store")
			}
			require.LessOrEqual(t, w.Calls()-calls, 6, "it does not try again and again")
			require.NoError(t, bucket.Reconfigure(bucketOf(20, 1, time.Hour, 0)))
			w.granted(bucket, 1)
			w.granted(window, 1)
			reason, _ := store.OutageKey.From(w.rejected(seats, 1))
			require.ErrorContains(t, reason, "concurrency here and a token_bucket in the store")
			require.NoError(t, seats.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 2}))
		}
	})
}

// program makes a bucket as a program that is deployed now.
func (w *world) program(limit int, generation int64) *store.Limiter {
	time.Sleep(time.Microsecond)
	return w.bucket(limit, 1, time.Hour, 0, &store.LimiterOptions{Generation: generation})
}

func (w *world) inForce(limit int) {
	w.Helper()
	synctest.Wait()
	d, _, err := w.Load(w.ctx, "bucket")
	require.NoError(w, err)
	require.EqualValues(w, limit, d.Permits)
}

func use(t *testing.T, l limiter.Limiter) {
	t.Helper()
	_ = must(l.TryAcquire(t.Context(), 0))(t)
	synctest.Wait()
}

// While a limit is raised, no key that has permits left is rejected, however many keys are used at once: their states
// are converted together.
func TestReconfigure_RejectsNoCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const keys = 600
		s := w.instance(store.Options{})
		p := w.keys(s, 10, nil)
		w.together(keys, func(i int) (limiter.Lease, error) { return p.TryAcquire(w.ctx, fmt.Sprint(i), 8) })
		require.NoError(t, p.Reconfigure(bucketOf(20, 1, time.Hour, 0)))
		w.Delay(20 * time.Millisecond)
		calls := w.Calls("Replace")
		granted := w.together(keys, func(i int) (limiter.Lease, error) { return p.TryAcquire(w.ctx, fmt.Sprint(i), 12) })
		require.EqualValues(t, 12*keys, granted)
		require.Less(t, w.Calls("Replace")-calls, 30, "a round trip for many")
		w.Delay(0)
		for i := range 10 {
			require.False(t, w.ask(p, fmt.Sprint(i)).Acquired(), "and no key is granted more")
		}
		require.Zero(t, s.Counters().Outages)
	})
}

// When Reconfigure has returned, no instance grants by the old limits, whether it listens or not, also for keys without
// a state.
func TestReconfigure_AllInstancesAtOnce(t *testing.T) {
	for _, how := range []*store.LimiterOptions{nil, {Block: 10}} {
		inWorld(t, func(t *testing.T, w *world) {
			o := store.Options{NoListen: true, RefreshInterval: time.Hour}
			a, b := w.keys(w.instance(o), 1000, how), w.keys(w.instance(o), 1000, how)
			require.True(t, w.ask(a, "used").Acquired())
			require.True(t, w.ask(b, "used").Acquired())
			require.NoError(t, a.Reconfigure(bucketOf(10, 1, time.Hour, 0)))
			granted := 0
			for range 100 {
				granted += w.ask(b, "fresh").Permits()
			}
			require.Equal(t, 10, granted)
			require.Equal(t, 10, must(b.Limits("fresh"))(t).Permits)
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		o := store.Options{NoListen: true, RefreshInterval: time.Hour}
		seats := func(n int) *store.Limiter { return w.concurrency(n, 0, o, nil) }
		a, b := seats(10), seats(10)
		w.granted(a, 1).Release()
		w.granted(b, 1).Release()
		require.NoError(t, a.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 2}))
		w.granted(b, 1)
		w.granted(b, 1)
		w.rejected(b, 1)
	})
}

// Permits that were borrowed before a Reconfigure can be granted for at most a second after it.
func TestReconfigure_Blocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := store.Options{NoListen: true, RefreshInterval: time.Hour}
		how := &store.LimiterOptions{Block: 100}
		a, b := w.keys(w.instance(o), 1000, nil), w.keys(w.instance(o), 1000, how)
		require.True(t, w.ask(a, "k").Acquired())
		for range 50 { // the blocks become larger
			require.True(t, w.ask(b, "k").Acquired())
		}
		require.NoError(t, a.Reconfigure(bucketOf(10, 1, time.Hour, 0)))
		granted := 0
		for range 500 {
			granted += w.ask(b, "k").Permits()
		}
		require.LessOrEqual(t, granted, 100)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		require.False(t, w.ask(b, "k").Acquired())
	})
}

// A stormy backend reconfigures its limiters each time a definition was loaded, so many times.
type stormy struct {
	*storetest.Memory
	left atomic.Int64
}

func (b *stormy) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
	d, now, err := b.Memory.Load(ctx, name)
	if d != nil && b.left.Add(-1) >= 0 {
		next := *d
		next.Version, next.Permits = max(now, d.Version+1), 200-d.Permits
		_, _ = b.Define(ctx, d.Version, &next)
	}
	return d, now, err
}

// However often a limiter is reconfigured, callers are answered as soon as their limits are known, and rejected only
// after CallTimeout.
func TestReconfigure_EndlessReconfigures(t *testing.T) {
	for name, make := range map[string]func(s *store.Store) limiter.Partitioned[string]{
		"windows": func(s *store.Store) limiter.Partitioned[string] {
			p, _ := s.PartitionedFixedWindow("x", limiter.FixedWindowOptions{PermitLimit: 101, Window: time.Hour}, nil)
			return p
		},
		"seats": func(s *store.Store) limiter.Partitioned[string] {
			p, _ := s.PartitionedConcurrency("x", limiter.ConcurrencyOptions{PermitLimit: 101}, nil)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &stormy{Memory: storetest.NewMemory()}
				p := make(newStore(t, b, store.Options{NoListen: true}))
				ask := func() limiter.Lease { return must(p.TryAcquire(t.Context(), "a", 1))(t) }
				require.True(t, ask().Acquired())
				reconfigured := func() {
					d, now, _ := b.Memory.Load(t.Context(), "x")
					next := *d
					next.Version = max(now, d.Version+1)
					_, _ = b.Define(t.Context(), d.Version, &next)
				}
				b.Delay(time.Millisecond)
				b.left.Store(20)
				reconfigured()
				require.True(t, ask().Acquired())
				require.LessOrEqual(t, b.left.Load(), int64(0))
				b.left.Store(1 << 30)
				reconfigured()
				calls := b.Calls()
				took := timed(func() { require.Equal(t, limiter.ReasonUnavailable, ask().Reason()) })
				require.InDelta(t, 500*time.Millisecond, took, float64(50*time.Millisecond))
				require.Less(t, b.Calls()-calls, 500, "with pauses")
			})
		})
	}
}

// Concurrent calls of Reconfigure succeed.
func TestReconfigure_Concurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &stormy{Memory: storetest.NewMemory()}
		l := must(newStore(t, b, store.Options{NoListen: true}).TokenBucket("x", bucketOf(101, 1, time.Hour, 0), nil))(t)
		use(t, l)
		b.left.Store(30)
		require.NoError(t, l.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		d, _, err := b.Memory.Load(t.Context(), "x")
		require.NoError(t, err)
		require.EqualValues(t, 50, d.Permits)
	})
}

func TestReconfigure_OtherInstances(t *testing.T) {
	for name, how := range map[string]struct {
		o     store.Options
		after time.Duration
		touch bool
	}{
		"by notice":  {store.Options{}, 0, false},
		"by touch":   {store.Options{NoListen: true, RefreshInterval: time.Hour}, 0, true},
		"by refresh": {store.Options{NoListen: true}, 10 * time.Second, true},
	} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
			a := w.bucket(10, 1, time.Hour, 0, nil)
			b := must(w.instance(how.o).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
			w.granted(a, 1)
			w.granted(b, 2)
			require.NoError(t, a.Reconfigure(bucketOf(5, 1, time.Hour, 3)))
			w.pass(how.after)
			if how.touch {
				w.try(b, 1)
			}
			synctest.Wait()
			require.Equal(t, bucketOf(5, 1, time.Hour, 0).Limits(), b.Limits(), "the queue is each instance's own")
			require.Equal(t, bucketOf(5, 1, time.Hour, 3).Limits(), a.Limits())
			_, err := b.TryAcquire(w.ctx, 6)
			require.ErrorIs(t, err, limiter.ErrPermitCount)
			require.Len(t, w.events.of(store.EventReconfigured), 2)
		}))
	}
}

// A Reconfigure is not undone by the first use of the same limiter that is under way.
func TestReconfigure_DuringTheFirstLoad(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		w.Delay(100 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = l.TryAcquire(w.ctx, 1) })
		time.Sleep(30 * time.Millisecond)
		require.NoError(t, l.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		wg.Wait()
		w.pass(time.Second)
		require.Equal(t, 50, l.Limits().Permits)
		d, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.EqualValues(t, 50, d.Permits)
	})
}

func TestReconfigure_AfterAStepBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.bucket(10, 1, time.Minute, 0, nil), w.bucket(10, 1, time.Minute, 0, nil)
		w.granted(a, 5)
		w.granted(b, 5)
		w.Step(-time.Hour)
		require.NoError(t, a.Reconfigure(bucketOf(12, 1, time.Minute, 0)))
		require.NoError(t, a.Reconfigure(bucketOf(13, 1, time.Minute, 0)))
		synctest.Wait()
		w.granted(b, 3)
		w.rejected(a, 1)
		w.pass(time.Minute)
		w.granted(a, 1)
		w.rejected(b, 1)
	})
}

func TestReconfigure_StoreAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 5, nil)
		w.granted(l, 1)
		w.hooked.Fail(errDead)
		for range 5 {
			require.ErrorIs(t, l.Reconfigure(bucketOf(20, 1, time.Hour, 9)), store.ErrUnavailable)
		}
		require.Equal(t, bucketOf(10, 1, time.Hour, 5).Limits(), l.Limits())
	})
}

// A change between the first use and the start of listening is not missed.
func TestReconfigure_BeforeListening(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(a, 1)
		w.hook(slow(time.Second, "Listen"), nil)
		b := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(b, 1)
		require.NoError(t, a.Reconfigure(bucketOf(20, 1, time.Hour, 0)))
		w.pass(time.Second)
		require.Equal(t, 20, b.Limits().Permits)
	})
}

// Limiters of a far store that are reconfigured together follow together: no caller waits for the loads of the others.
func TestReconfigure_ManyFarLimiters(t *testing.T) {
	for _, c := range []struct {
		limiters  int
		roundTrip time.Duration
		noListen  bool
	}{{100, 60 * time.Millisecond, true}, {100, 60 * time.Millisecond, false}, {40, 85 * time.Millisecond, true}, {40, 85 * time.Millisecond, false}} {
		if testing.Short() && c.limiters == 100 {
			continue
		}
		t.Run(fmt.Sprint(c), subtest(func(t *testing.T, w *world) {
			w.Delay(c.roundTrip)
			a, b := w.instance(store.Options{}), w.instance(store.Options{NoListen: c.noListen})
			here, there := make([]*store.Limiter, c.limiters), make([]*store.Limiter, c.limiters)
			for i := range c.limiters {
				o := bucketOf(1000, 1000, time.Second, 0)
				here[i] = must(a.TokenBucket(fmt.Sprint(i), o, nil))(t)
				there[i] = must(b.TokenBucket(fmt.Sprint(i), o, nil))(t)
			}
			ctx, stop := context.WithCancel(w.ctx)
			defer stop()
			var all sync.WaitGroup
			for i := range c.limiters {
				w.granted(here[i], 1)
				all.Go(func() {
					for ctx.Err() == nil {
						if lease, err := there[i].TryAcquire(ctx, 1); err == nil {
							assert.True(t, lease.Acquired(), "%v", lease.Reason())
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			w.pass(3 * time.Second)
			for i := range c.limiters {
				all.Go(func() { assert.NoError(t, here[i].Reconfigure(bucketOf(2000, 1000, time.Second, 0))) })
			}
			w.pass(3 * time.Second)
			stop()
			all.Wait()
		}))
	}
}

// What ReconfigureLater sets while a Reconfigure is under way comes into force after it.
func TestReconfigureLater_DuringReconfigure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Second, 0, nil)
		w.granted(l, 1)
		var once sync.Once
		w.hook(func(method string) error {
			if method == "Define" {
				time.Sleep(time.Millisecond)
				once.Do(func() { l.ReconfigureLater(bucketOf(30, 1, time.Second, 0)) })
			}
			return nil
		}, nil)
		require.NoError(t, l.Reconfigure(bucketOf(20, 1, time.Second, 0)))
		w.pass(time.Minute)
		require.Equal(t, 30, l.Limits().Permits)
	})
}

// An instance whose callers all want more permits than the known limit learns of a raised limit, also without notices.
func TestAcquire_MoreThanTheLimitWas(t *testing.T) {
	for _, used := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.bucket(10, 1, time.Hour, 0, nil)
			use(t, a)
			l := must(w.instance(store.Options{NoListen: true}).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
			if used {
				use(t, l)
			}
			time.Sleep(2 * time.Second)
			require.NoError(t, a.Reconfigure(bucketOf(100, 1, time.Hour, 0)))
			w.pass(10 * time.Second)
			w.granted(l, 50)
		})
	}
}

// Without notices, waiting callers learn of a raise at another instance, too.
func TestAcquire_LimitRaisedElsewhereWithoutListening(t *testing.T) {
	for name, cut := range map[string]bool{"NoListen": false, "unsupported": true} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
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
		}))
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
