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

// However late an old program starts, the limits of the newer one stay.
func TestFirstUse_LateOldProgram(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, late := w.program(1000, 0), w.program(1000, 0)
		use(t, old)
		w.inForce(1000)
		newer := w.program(10, 0)
		use(t, newer)
		w.inForce(10)
		require.Empty(t, w.events.of(store.EventOverruled))
		use(t, late)
		w.inForce(10)
		require.Len(t, w.events.of(store.EventOverruled), 1)
		require.Equal(t, 10, late.Limits().Permits)
		time.Sleep(time.Minute)
		use(t, w.program(1000, 0)) // started again in the middle of the deployment
		w.inForce(10)
		require.Len(t, w.events.of(store.EventOverruled), 2)
		use(t, w.program(20, 0)) // the next deployment
		w.inForce(20)
	})
}

// The same if the older program was not used before the newer one.
func TestFirstUse_UnusedOldProgram(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, newer := w.program(1000, 0), w.program(10, 0)
		use(t, newer)
		use(t, old)
		w.inForce(10)
		granted := 0
		for range 100 {
			granted += w.try(old, 1).Permits()
		}
		require.Equal(t, 10, granted)
	})
}

// Reconfigure wins over limiters that were made before and over limits that it has replaced. A program that is deployed
// later with other limits sets them.
func TestFirstUse_AndReconfigure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, late := w.program(10, 0), w.program(20, 0)
		use(t, a)
		time.Sleep(time.Second)
		require.NoError(t, a.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		use(t, late) // was made before
		w.inForce(50)
		time.Sleep(time.Second)
		use(t, w.program(10, 0)) // an instance that is started again
		w.inForce(50)
		overruled := w.events.of(store.EventOverruled)
		require.Len(t, overruled, 2)
		require.ErrorContains(t, overruled[0].Err, "newer limits were set after this limiter was made")
		require.ErrorContains(t, overruled[1].Err, "newer limits have replaced the limits of this limiter")
		use(t, w.program(30, 0)) // the next deployment
		w.inForce(30)
		time.Sleep(time.Second)
		for _, limit := range []int{10, 50} { // those before it
			use(t, w.program(limit, 0))
			w.inForce(30)
		}
		require.Len(t, w.events.of(store.EventOverruled), 4)
		require.NoError(t, a.Reconfigure(bucketOf(10, 1, time.Hour, 0)))
		w.inForce(10) // back again
	})
}

// However often Reconfigure is called, an instance that is started again does not set the program's limits again.
func TestFirstUse_AfterManyReconfigures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.program(10, 0)
		use(t, a)
		for i := range 100 {
			require.NoError(t, a.Reconfigure(bucketOf(1000+i, 1, time.Hour, 0)))
			if i%10 == 0 { // also the same limits as the program's
				require.NoError(t, a.Reconfigure(bucketOf(10, 1, time.Hour, 0)))
			}
		}
		time.Sleep(time.Second)
		use(t, w.program(10, 0))
		w.inForce(1099)
		use(t, w.program(1095, 0))
		w.inForce(1099)
		d, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.Less(t, len(d.Terms), 300, "it is bounded")
	})
}

// A larger generation wins over Reconfigure, also with limits that were in force before.
func TestFirstUse_Generation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.program(1000, 0)
		use(t, old)
		use(t, w.program(10, 1))
		w.inForce(10)
		time.Sleep(time.Second)
		use(t, w.program(77, 0))
		w.inForce(10)
		require.ErrorContains(t, w.events.of(store.EventOverruled)[0].Err, "generation 1")
		require.NoError(t, old.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		w.inForce(50)
		time.Sleep(time.Second)
		use(t, w.program(78, 0))
		w.inForce(50)
		use(t, w.program(1000, 2)) // rolled back
		w.inForce(1000)
		use(t, w.program(10, 1))
		w.inForce(1000)
	})
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

// Reconfigure before the first use makes the constructor's limits old ones.
func TestReconfigure_BeforeTheFirstUse(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, w *world){
		"of a new limiter": func(*testing.T, *world) {},
		"with the limits in force": func(t *testing.T, w *world) {
			require.NoError(t, w.program(20, 0).Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		},
		"of other limits": func(t *testing.T, w *world) { use(t, w.program(20, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				before(t, w)
				time.Sleep(time.Second)
				require.NoError(t, w.program(10, 0).Reconfigure(bucketOf(50, 1, time.Hour, 0)))
				time.Sleep(time.Second)
				use(t, w.program(10, 0)) // the same program, started again
				w.inForce(50)
				use(t, w.program(30, 0)) // the next deployment
				w.inForce(30)
			})
		})
	}
}

// A Reconfigure to the limits in force renews their origin and changes nothing else.
func TestReconfigure_ToTheLimitsInForce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.program(10, 0)
		use(t, a)
		require.NoError(t, a.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		before, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		time.Sleep(time.Second)
		late := w.program(30, 0)
		time.Sleep(time.Second)
		require.NoError(t, w.program(50, 0).Reconfigure(bucketOf(50, 1, time.Hour, 0)))
		after, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.Equal(t, before.Version, after.Version, "no state has to be converted")
		time.Sleep(time.Second)
		use(t, late)
		w.inForce(50)
		use(t, w.program(31, 0))
		w.inForce(31)
	})
}

// If the store has lost everything and an older program uses it first, the newer limits come back with the first call
// of an instance that knows them. Limits that are newer still stay.
func TestFirstUse_StoreLostDefinition(t *testing.T) {
	for name, kept := range map[string]bool{"an older program's": false, "a newer program's": true} {
		for _, o := range []store.Options{{}, {NoListen: true}} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					how, limit := &store.LimiterOptions{}, 10
					if kept {
						limit = 30
					}
					instance := func(limit int) *store.Limiter {
						return must(w.instance(o).TokenBucket("bucket", bucketOf(limit, 1, time.Hour, 0), how))(t)
					}
					a, other := instance(10), instance(10)
					use(t, a)
					use(t, other)
					require.NoError(t, a.Reconfigure(bucketOf(50, 1, time.Hour, 0)))
					use(t, other)
					time.Sleep(time.Second)
					w.Forget()
					b := instance(limit)
					use(t, b)
					want := 50
					if kept {
						want = 30
					}
					for range 3 {
						for _, l := range []*store.Limiter{a, other, b} {
							w.try(l, 1)
							synctest.Wait()
						}
						w.inForce(want)
						time.Sleep(time.Minute)
					}
					d, _, err := w.Load(w.ctx, "bucket")
					require.NoError(t, err)
					version := d.Version
					time.Sleep(time.Hour)
					for _, l := range []*store.Limiter{a, other, b} {
						use(t, l)
						require.Equal(t, want, l.Limits().Permits)
					}
					d, _, err = w.Load(w.ctx, "bucket")
					require.NoError(t, err)
					require.Equal(t, version, d.Version, "the instances agree")
				})
			})
		}
	}
}

// The same if the lost limits were set by a deployment, and the late program is older or has limits that were replaced.
func TestFirstUse_StoreLostDeployment(t *testing.T) {
	for _, limit := range []int{1000, 77} {
		inWorld(t, func(t *testing.T, w *world) {
			late := w.program(limit, 0)
			use(t, w.program(1000, 0))
			time.Sleep(time.Second)
			newer := w.program(10, 0)
			use(t, newer)
			w.inForce(10)
			w.Forget()
			use(t, late)
			use(t, newer)
			w.inForce(10)
			use(t, late)
			require.Equal(t, 10, late.Limits().Permits)
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
		require.Equal(t, 20, a.Limits().Permits)
		w.granted(a, 11)
		w.rejected(a, 1)
		w.rejected(b, 1)
	})
}
