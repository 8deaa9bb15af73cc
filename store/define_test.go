package store_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

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
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.bucket(10, 1, time.Hour, 0, nil)
				b := must2(w.instance(how.o).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
				w.granted(a, 1)
				w.granted(b, 2)
				require.NoError(t, a.Reconfigure(bucketOf(5, 1, time.Hour, 3)))
				w.pass(how.after)
				if how.touch {
					w.try(b, 1)
				}
				synctest.Wait()
				require.Equal(t, bucketOf(5, 1, time.Hour, 0), b.Options(), "the queue is each instance's own")
				require.Equal(t, bucketOf(5, 1, time.Hour, 3), a.Options())
				_, err := b.TryAcquire(w.ctx, 6)
				require.ErrorIs(t, err, limiter.ErrPermitCount)
				require.Len(t, w.events.of(store.EventReconfigured), 2)
			})
		})
	}
}

func TestFirstUse_LastConstructor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(a, 8)
		b := w.bucket(20, 1, time.Hour, 0, nil)
		w.granted(b, 1)
		synctest.Wait()
		require.Equal(t, 20, a.Options().TokenLimit)
		w.granted(a, 11)
		w.rejected(a, 1)
		w.rejected(b, 1)
	})
}

// A Reconfigure that returned is not undone by the first question of the same limiter, which
// was on its way with the limits of the constructor.
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
		require.Equal(t, 50, l.Options().TokenLimit)
		d, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.EqualValues(t, 50, d.Permits)
	})
}

// A store that has forgotten everything is told again by the instance that knows the newest limits,
// even if its clock is behind what it was.
func TestDefinition_StoreRestartedEmpty(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Hour, time.Hour} {
		for _, kind := range []string{"bucket", "seats"} {
			t.Run(step.String()+" "+kind, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
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
					for _, l := range []*store.TokenBucket{a, b, c} {
						w.rejected(l, 1)
						require.Equal(t, 8, l.Options().TokenLimit)
					}
				})
			})
		}
	}
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

// Limiters of two kinds by one name are decided by what the last has said. Where the permits of one are lent and those
// of the other spent, the one that lost says so at once, and goes on when the definition is of its kind again.
func TestReconfigure_AnotherKindByTheSameName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bucket := must2(w.instance(store.Options{}).TokenBucket("it", bucketOf(10, 1, time.Hour, 0), nil))(t)
		w.granted(bucket, 1)
		window := must2(w.instance(store.Options{}).FixedWindow("it", limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}, nil))(t)
		w.granted(window, 1)
		synctest.Wait()
		require.Equal(t, 10, bucket.Options().TokenLimit)
		w.granted(bucket, 3)
		w.rejected(window, 1)
		seats := must2(w.instance(store.Options{}).Concurrency("it", limiter.ConcurrencyOptions{PermitLimit: 2}, nil))(t)
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

// A limiter whose name is another kind's is answered for as during an outage, from its first use on.
func TestLimiter_AnotherKindHasItsName(t *testing.T) {
	for outage, granted := range map[store.OutagePolicy]bool{store.FailClosed: false, store.FailOpen: true, store.FallBackLocally: true} {
		t.Run(outage.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				o := limiter.ConcurrencyOptions{PermitLimit: 2}
				how := &store.LimiterOptions{Outage: outage}
				if outage == store.FallBackLocally {
					how.LocalShare = 1
				}
				first := must2(w.instance(store.Options{}).Concurrency("it", o, nil))(t)
				w.granted(first, 1)
				late := must2(w.instance(store.Options{}).TokenBucket("it", bucketOf(10, 1, time.Hour, 0), how))(t)
				require.NoError(t, first.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 3}))
				for range 3 {
					lease, err := late.TryAcquire(w.ctx, 1)
					require.NoError(t, err)
					require.Equal(t, granted, lease.Acquired())
					reason, _ := store.OutageKey.From(lease)
					require.ErrorIs(t, reason, store.ErrUnavailable)
					require.ErrorContains(t, reason, "a token_bucket here and a concurrency in the store")
					synctest.Wait()
				}
			})
		})
	}
}

func TestReconfigure_Queue(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 5, nil)
		w.granted(l, 10)
		a := w.acquire(l, 5)
		require.NoError(t, l.Reconfigure(bucketOf(10, 1, time.Hour, 2)))
		w.waits(a)
		b := w.acquire(l, 1)
		require.Equal(t, limiter.ReasonQueueLimit, b.lease.Reason())
		require.NoError(t, l.Reconfigure(bucketOf(10, 1, time.Hour, 6)))
		w.waits(w.acquire(l, 1))
		w.pass(5 * time.Hour)
		w.served(a)
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
		require.Equal(t, bucketOf(10, 1, time.Hour, 5), l.Options())
	})
}

// What happened between the first question and the moment from which one listens is not missed.
func TestReconfigure_BeforeListening(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(a, 1)
		w.hook(func(method string) error {
			if method == "Listen" {
				time.Sleep(time.Second)
			}
			return nil
		}, nil)
		b := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(b, 1)
		require.NoError(t, a.Reconfigure(bucketOf(20, 1, time.Hour, 0)))
		w.pass(time.Second)
		require.Equal(t, 20, b.Options().TokenLimit)
	})
}
