package store_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// If the store has lost everything, the instance with the newest limits sets them again, even if the store's clock has
// stepped back.
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
					for _, l := range []*store.Limiter{a, b, c} {
						w.rejected(l, 1)
						require.Equal(t, 8, l.Limits().Permits)
					}
				})
			})
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

// A limiter whose name belongs to another kind answers by its outage policy from its first use on.
func TestLimiter_AnotherKindHasItsName(t *testing.T) {
	for outage, granted := range map[store.OutagePolicy]bool{store.FailClosed: false, store.FailOpen: true, store.FallBackLocally: true} {
		t.Run(outage.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				o := limiter.ConcurrencyOptions{PermitLimit: 2}
				how := &store.LimiterOptions{Outage: outage}
				if outage == store.FallBackLocally {
					how.LocalShare = 1
				}
				first := must(w.instance(store.Options{}).Concurrency("it", o, nil))(t)
				w.granted(first, 1)
				late := must(w.instance(store.Options{}).TokenBucket("it", bucketOf(10, 1, time.Hour, 0), how))(t)
				time.Sleep(time.Second)
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
	_, err := l.TryAcquire(t.Context(), 0)
	require.NoError(t, err)
	synctest.Wait()
}

// Limits that ReconfigureLater could not set for a while do not replace limits that were set since the call.
func TestReconfigureLater_StoreAway(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, w *world, a *store.Limiter){
		"Reconfigure": func(t *testing.T, _ *world, a *store.Limiter) {
			require.NoError(t, a.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		},
		"first use": func(t *testing.T, w *world, _ *store.Limiter) { use(t, w.program(50, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				down := &hooked{Memory: w.Memory}
				s := newStore(t, down, store.Options{OnEvent: w.events.add})
				late := must(s.TokenBucket("bucket", bucketOf(5, 1, time.Hour, 0), nil))(t)
				a := w.program(5, 0)
				use(t, late)
				use(t, a)
				later := func() { require.NoError(t, late.ReconfigureLater(bucketOf(7, 1, time.Hour, 0))) }
				later()
				w.inForce(7)
				require.NoError(t, a.Reconfigure(bucketOf(6, 1, time.Hour, 0)))
				later() // called after it
				w.inForce(7)
				require.NoError(t, a.Reconfigure(bucketOf(6, 1, time.Hour, 0)))
				down.hook(func(string) error { return errors.New("partitioned") }, nil)
				later()
				w.pass(time.Minute)
				set(t, w, a)
				w.pass(time.Minute)
				down.hook(nil, nil)
				w.pass(time.Minute)
				w.inForce(50)
				require.Equal(t, 50, late.Limits().Permits)
				overruled := w.events.of(store.EventOverruled)
				require.Len(t, overruled, 1)
				require.ErrorContains(t, overruled[0].Err, "newer limits were set after ReconfigureLater was called")
				later()
				w.inForce(7)
			})
		})
	}
}

// If the store has lost everything and an older program uses it first, the newer limits come back with the first call
// of an instance that knows them. Limits that are newer still stay.
func TestFirstUse_StoreLostDefinition(t *testing.T) {
	for limit, want := range map[int]int{10: 50, 30: 30} {
		for _, o := range []store.Options{{}, {NoListen: true}} {
			inWorld(t, func(t *testing.T, w *world) {
				instance := func(limit int) *store.Limiter {
					return must(w.instance(o).TokenBucket("bucket", bucketOf(limit, 1, time.Hour, 0), nil))(t)
				}
				all := []*store.Limiter{instance(10), instance(10)}
				use(t, all[0])
				require.NoError(t, all[0].Reconfigure(bucketOf(50, 1, time.Hour, 0)))
				use(t, all[1])
				time.Sleep(time.Second)
				w.Forget()
				all = append(all, instance(limit))
				use(t, all[2])
				var versions [3]int64
				for i := range versions {
					for _, l := range all {
						use(t, l)
					}
					w.inForce(want)
					d, _, err := w.Load(w.ctx, "bucket")
					require.NoError(t, err)
					versions[i] = d.Version
					time.Sleep(time.Minute)
				}
				require.Equal(t, versions[1], versions[2], "the instances agree")
				for _, l := range all {
					require.Equal(t, want, l.Limits().Permits)
				}
			})
		}
	}
}

func TestFirstUse_LastConstructor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(a, 8)
		b := w.bucket(20, 1, time.Hour, 0, nil)
		w.granted(b, 1)
		synctest.Wait()
		require.Equal(t, 20, a.Limits().Permits)
		w.granted(a, 11)
		w.rejected(a, 1)
		w.rejected(b, 1)
	})
}
