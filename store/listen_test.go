package store_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// However many notices arrive, at most one refresh is under way, and the last change is seen.
func TestNotice_Flood(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow := &hooked{Memory: w.Memory}
		l := must(newStore(t, slow, store.Options{CallTimeout: time.Minute}).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		a := w.bucket(10, 1, time.Hour, 0, nil)
		use(t, l)
		use(t, a)
		loads, underWay := 0, 0
		slow.hook(func(method string) error {
			if method == "Load" {
				loads++
				underWay++
				assert.Equal(t, 1, underWay)
				time.Sleep(time.Second)
			}
			return nil
		}, func(method string) error {
			if method == "Load" {
				underWay--
			}
			return nil
		})
		before := runtime.NumGoroutine()
		for i := range 1000 {
			require.NoError(t, a.Reconfigure(bucketOf(100+i, 1, time.Hour, 0)))
			synctest.Wait()
		}
		require.Less(t, runtime.NumGoroutine()-before, 10)
		w.pass(10 * time.Second)
		require.Equal(t, 1099, l.Limits().Permits)
		require.Equal(t, 2, loads, "the one that was under way, and one more")
		require.NoError(t, a.Reconfigure(bucketOf(5, 1, time.Hour, 0)))
		w.pass(10 * time.Second)
		require.Equal(t, 5, l.Limits().Permits)
		slow.hook(nil, nil) // Close asks for the last figures
	})
}

// While the connection for notices is lost, waiting callers poll. When it is back, nothing is missed.
func TestListen_FailsAndRecovers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.concurrency(1, 5, store.Options{}, nil)
		s := w.instance(store.Options{RefreshInterval: time.Hour})
		b := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 5}, nil))(t)
		lease := w.granted(a, 1)
		waiting := w.acquire(b, 1)
		require.True(t, s.Health().Listening)
		w.hook(failing(errors.New("cut"), "Listen"), nil)
		w.NoListen(true) // cuts
		w.NoListen(false)
		w.pass(time.Second)
		require.False(t, s.Health().Listening)
		require.Len(t, w.events.of(store.EventListenFailed), 2, "one for each instance, however often it is tried")
		lease.Release()
		w.pass(75 * time.Millisecond)
		w.served(waiting).Release()
		require.NoError(t, a.Reconfigure(limiter.ConcurrencyOptions{PermitLimit: 3, QueueLimit: 5}))
		w.hook(nil, nil)
		w.pass(time.Minute)
		require.True(t, s.Health().Listening)
		require.Equal(t, 3, b.Limits().Permits, "what was missed is looked for")
		lease = w.granted(a, 3)
		waiting = w.acquire(b, 1)
		lease.Release()
		synctest.Wait()
		w.served(waiting)
	})
}
