package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

func TestQueue_PollsWithoutListening(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		quiet := store.Options{NoListen: true}
		a, b := w.concurrency(1, 5, quiet, nil), w.concurrency(1, 5, quiet, nil)
		lease := w.granted(a, 1)
		waiting := w.acquire(b, 1)
		calls := w.Calls("Acquire")
		w.pass(10 * time.Second)
		require.LessOrEqual(t, w.Calls("Acquire")-calls, 10*41)
		lease.Release()
		w.pass(75 * time.Millisecond)
		w.served(waiting).Release()
	})
}

// TryAcquire leaves to the queue what it waits for, also while the queue waits for its turn.
func TestQueue_TryAcquireOvertakesNone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(2 * time.Millisecond)
		a, b := w.bucket(10, 10, time.Second, 20, nil), w.bucket(10, 10, time.Second, 20, nil)
		for range 3 {
			w.pass(time.Second - 5*time.Millisecond)
			for w.try(b, 1).Acquired() {
			}
			for first := w.acquire(a, 2); !first.done.Load(); {
				if n := int(b.Statistics().AvailablePermits); n > 1 {
					w.try(b, n-1)
				}
				overtook := !first.done.Load() && w.try(a, 1).Acquired()
				require.False(t, overtook && !first.done.Load())
			}
		}
	})
}

func TestQueue_LimitLoweredElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.bucket(10, 1, time.Hour, 20, nil), w.bucket(10, 1, time.Hour, 20, nil)
		w.granted(a, 10)
		large, small := w.acquire(b, 6), w.acquire(b, 2)
		require.NoError(t, a.Reconfigure(bucketOf(5, 1, time.Hour, 20)))
		synctest.Wait()
		require.True(t, large.done.Load())
		require.Equal(t, limiter.ReasonLimitLowered, large.lease.Reason())
		w.waits(small)
		require.NoError(t, a.Reconfigure(bucketOf(12, 1, time.Hour, 20)))
		synctest.Wait()
		w.served(small)
	})
}

// Waits longer than a Duration can hold are the longest Duration, and make no caller poll.
func TestQueue_VeryLongWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1000, 1, 50*365*24*time.Hour, 2000, caching)
		w.granted(l, 1000)
		d, ok := w.rejected(l, 900).RetryAfter()
		require.True(t, ok)
		require.Greater(t, d, 250*365*24*time.Hour)
		a := w.acquire(l, 900)
		calls := w.Calls()
		w.pass(time.Second)
		w.waits(a)
		require.Equal(t, calls, w.Calls())
	})
}

// The limit can be lowered below a caller's permits just before it joins the queue.
func TestAcquire_LimitLoweredBeforeTheQueue(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(5, 1, time.Second, 100, nil)
		w.granted(l, 5)
		require.Equal(t, limiter.ReasonLimitLowered, store.JoinLate(l, 10).Reason())
		a := w.acquire(l, 1)
		w.pass(time.Second)
		w.served(a)
	})
}

// Behind more waiters than a forecast looks at one by one, RetryAfter is not much later than the moment at which the queue
// is served.
func TestQueue_RetryAfterBehindManyWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(100, 10, 100*time.Millisecond, 500, nil)
		w.granted(l, 100)
		for range 500 {
			w.acquire(l, 1)
		}
		w.pass(time.Millisecond)
		lease := must(l.Acquire(t.Context(), 1))(t)
		require.False(t, lease.Acquired())
		d, ok := lease.RetryAfter()
		require.True(t, ok)
		require.GreaterOrEqual(t, d, 5*time.Second)
		require.LessOrEqual(t, d, 7*time.Second) // and not minutes
	})
}
