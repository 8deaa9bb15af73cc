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

// withRival returns a limiter that knows a rival, at the beginning of a window of a second with 100 permits.
func (w *world) withRival(queue int, order limiter.QueueOrder) (l, rival *store.FixedWindow) {
	w.Helper()
	o := limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Second, QueueLimit: queue, QueueOrder: order}
	l = must(w.instance(store.Options{}).FixedWindow("it", o, nil))(w.T)
	rival = must(w.instance(store.Options{}).FixedWindow("it", o, nil))(w.T)
	w.granted(rival, 100)
	a := w.acquire(l, 1)
	w.waits(a)
	w.pass(2 * time.Second)
	w.served(a)
	w.granted(rival, 1)
	w.granted(l, 1)
	return l, rival
}

// A caller that finds permits is not rejected because of rivals.
func TestFairness_RejectsNoCaller(t *testing.T) {
	for _, order := range []limiter.QueueOrder{limiter.OldestFirst, limiter.NewestFirst} {
		t.Run(order.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.Delay(time.Millisecond)
				l, _ := w.withRival(5, order)
				large := w.acquire(l, 10)
				var all []*waiting
				for range 40 {
					all = append(all, w.acquire(l, 1))
				}
				w.pass(time.Second)
				w.served(large)
				for _, a := range all {
					w.served(a)
				}
			})
		})
	}
}

// A caller that waits for many permits is not starved by callers that want one.
func TestFairness_KeepsTheQueueOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l := w.bucket(10, 1, 100*time.Millisecond, 20, nil)
		rival := w.bucket(10, 1, 100*time.Millisecond, 20, nil)
		w.granted(rival, 10)
		head := w.acquire(l, 10)
		for i := range 400 {
			w.pass(10 * time.Millisecond)
			if i%100 == 50 {
				w.try(rival, 1)
			}
			if !head.done.Load() {
				w.rejected(l, 1)
			}
		}
		w.served(head)
		require.Less(t, head.took, 3*time.Second)
	})
}

// If there is enough for all, no caller waits because of rivals.
func TestFairness_EnoughForAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l, other := w.withRival(100, limiter.OldestFirst)
		for window := range 12 {
			w.pass(time.Second)
			w.granted(other, 1)
			var all []*waiting
			for range 60 {
				all = append(all, w.acquire(l, 1))
			}
			w.pass(50 * time.Millisecond)
			if window < 6 {
				continue // a caller has just been rejected
			}
			for _, a := range all {
				require.LessOrEqual(t, w.served(a).Permits(), 1)
				require.Less(t, a.took, 10*time.Millisecond)
			}
		}
	})
}

// A turn that was chosen for one waiter delays no other caller.
func TestFairness_StepBackEndsWithItsWaiter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, 100*time.Millisecond, 10, nil)
		w.granted(l, 10)
		for range 20 {
			a := w.acquire(l, 5)
			w.pass(600 * time.Millisecond)
			w.served(a)
			a = w.acquire(l, 5)
			w.pass(250 * time.Millisecond)
			a.cancel()
			synctest.Wait()
			b := w.acquire(l, 1)
			w.pass(time.Millisecond)
			w.served(b)
		}
	})
}

// Callers that wait because of rivals are answered as soon as the store counts as away.
func TestFairness_OutageDuringARest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(time.Millisecond)
		l, _ := w.withRival(100, limiter.OldestFirst)
		var all []*waiting
		for range 80 {
			all = append(all, w.acquire(l, 1))
		}
		w.pass(5 * time.Millisecond)
		w.waits(all[79])
		w.hook(func(string) error { return errors.New("dead") }, nil)
		for range 3 {
			w.pass(time.Millisecond)
			_, err := l.TryAcquire(w.ctx, 1)
			require.NoError(t, err)
		}
		w.pass(100 * time.Millisecond)
		for _, a := range all {
			require.True(t, a.done.Load())
		}
		require.Equal(t, limiter.ReasonUnavailable, all[79].lease.Reason())
	})
}
