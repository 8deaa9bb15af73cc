package store_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// Two instances with waiting callers both get permits, and ask about as often as permits come back.
func TestQueue_CallsOfTwoInstances(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "cached": caching, "blocks": {Block: 4}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.Delay(time.Millisecond)
				instances := []*store.Limiter{w.bucket(4, 2, 100*time.Millisecond, 100, how), w.bucket(4, 2, 100*time.Millisecond, 100, how)}
				w.granted(instances[0], 4)
				var all [2][]*waiting
				for range 20 {
					for i, l := range instances {
						all[i] = append(all[i], w.acquire(l, 1))
					}
				}
				calls := w.Calls("Decide")
				w.pass(1500 * time.Millisecond)
				for i := range all {
					served := 0
					for _, a := range all[i] {
						if a.done.Load() {
							w.served(a)
							served++
						}
					}
					require.GreaterOrEqual(t, served, 5, "instance %d makes progress", i)
				}
				require.LessOrEqual(t, w.Calls("Decide")-calls, 15*7, "a few questions for each refill")
				w.pass(3 * time.Second)
				for i := range all {
					for _, a := range all[i] {
						w.served(a)
					}
				}
			})
		})
	}
}

func TestQueue_Order(t *testing.T) {
	for _, order := range []limiter.QueueOrder{limiter.OldestFirst, limiter.NewestFirst} {
		inWorld(t, func(t *testing.T, w *world) {
			o := bucketOf(1, 1, 100*time.Millisecond, 10)
			o.QueueOrder = order
			l := must(w.instance(store.Options{}).TokenBucket("it", o, nil))(t)
			w.granted(l, 1)
			var all []*waiting
			for range 5 {
				all = append(all, w.acquire(l, 1))
				w.pass(time.Millisecond)
			}
			for i := range all {
				w.pass(100 * time.Millisecond)
				for j, a := range all {
					place := j
					if order == limiter.NewestFirst {
						place = len(all) - 1 - j
					}
					require.Equal(t, place <= i, a.done.Load(), "%v: after %d refills, number %d", order, i+1, j)
				}
			}
		})
	}
}

// A waiter for 0 permits is served when the first permit is back, whatever the first waiter needs.
func TestQueue_ZeroPermits(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "blocks": {Block: 4}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := w.bucket(10, 1, 100*time.Millisecond, 20, how)
				w.granted(l, 10)
				head, zero := w.acquire(l, 10), w.acquire(l, 0)
				w.waits(zero)
				w.pass(101 * time.Millisecond)
				w.served(zero)
				require.Equal(t, 100*time.Millisecond, zero.took)
				w.pass(900 * time.Millisecond)
				w.served(head)
			})
		})
	}
}

// A new caller that finds the queue empty does not wait for permits of callers that have left.
func TestQueue_AfterAllHaveLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Second, 20, nil)
		w.granted(l, 9)
		head := w.acquire(l, 10)
		a := w.acquire(l, 1)
		w.waits(a)
		head.cancel()
		synctest.Wait()
		w.served(a)
		require.ErrorIs(t, head.err, context.Canceled)
	})
}

func TestQueue_ReleaseNotice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.concurrency(1, 5, store.Options{}, nil), w.concurrency(1, 5, store.Options{}, nil)
		lease := w.granted(a, 1)
		waiting := w.acquire(b, 1)
		w.pass(500 * time.Millisecond)
		lease.Release()
		synctest.Wait()
		w.served(waiting).Release()
		require.Equal(t, 500*time.Millisecond, waiting.took)
	})
}

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

func TestQueue_CancelAndClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.TokenBucket("it", bucketOf(10, 1, time.Hour, 20), nil))(t)
		w.granted(l, 10)
		first, second, third := w.acquire(l, 2), w.acquire(l, 3), w.acquire(l, 4)
		require.EqualValues(t, 9, l.Statistics().QueuedPermits)
		second.cancel()
		synctest.Wait()
		require.ErrorIs(t, second.err, context.Canceled)
		require.EqualValues(t, 6, l.Statistics().QueuedPermits)
		require.NoError(t, s.Close())
		synctest.Wait()
		for _, a := range []*waiting{first, third} {
			require.True(t, a.done.Load())
			require.NoError(t, a.err)
			require.Equal(t, limiter.ReasonClosed, a.lease.Reason())
		}
		_, err := l.Acquire(w.ctx, 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
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

// A rejection of a concurrency limiter has no Retry-After.
func TestQueue_NoRetryAfterForConcurrency(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.concurrency(4, 2, store.Options{}, nil)
		w.granted(l, 4)
		lease, err := l.Acquire(w.ctx, 3)
		require.NoError(t, err)
		require.Equal(t, limiter.ReasonQueueLimit, lease.Reason())
		_, ok := lease.RetryAfter()
		require.False(t, ok)
	})
}

// The reason of a limiter without a queue is not that the queue is full.
func TestAcquire_ReasonWithoutAQueue(t *testing.T) {
	for name, how := range map[string]*store.LimiterOptions{"plain": nil, "cached": caching, "blocks": {Block: 10}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := w.bucket(1, 1, time.Hour, 0, how)
				w.granted(l, 1)
				lease, err := l.Acquire(w.ctx, 1)
				require.NoError(t, err)
				require.Equal(t, limiter.ReasonNoPermit, lease.Reason())
			})
		})
	}
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
		lease, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		require.False(t, lease.Acquired())
		d, ok := lease.RetryAfter()
		require.True(t, ok)
		require.GreaterOrEqual(t, d, 5*time.Second)
		require.LessOrEqual(t, d, 7*time.Second) // and not minutes
	})
}
