package store_test

import (
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
