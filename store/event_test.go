package store_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// If OnEvent panics or does not return, later events are not lost, and Close does not wait for it.
func TestOptions_OnEventMisbehaves(t *testing.T) {
	for name, misbehave := range map[string]func(stop chan struct{}){
		"panics": func(chan struct{}) { panic("OnEvent") },
		"Goexit": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []store.EventKind
				memory := storetest.NewMemory()
				s := newStore(t, memory, store.Options{FailureThreshold: 1, OnEvent: func(e store.Event) {
					told = append(told, e.Kind)
					misbehave(nil)
				}})
				l := must(s.TokenBucket("it", bucketOf(1, 1, time.Hour, 0), nil))(t)
				memory.Fail(errors.New("away"))
				_, _ = l.TryAcquire(t.Context(), 1)
				synctest.Wait()
				memory.Fail(nil)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Equal(t, []store.EventKind{store.EventStoreLost, store.EventStoreRecovered}, told)
			})
		})
	}
	t.Run("blocks, and closes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			memory := storetest.NewMemory()
			var s *store.Store
			s = newStore(t, memory, store.Options{FailureThreshold: 1, OnEvent: func(store.Event) {
				_ = s.Close()
				<-stop
			}})
			l := must(s.TokenBucket("it", bucketOf(1, 1, time.Hour, 0), nil))(t)
			memory.Fail(errors.New("away"))
			_, _ = l.TryAcquire(t.Context(), 1)
			synctest.Wait()
			require.NoError(t, s.Close())
			close(stop)
		})
	})
}

// OnEvent can block, and can call the limiter of the event.
func TestOptions_OnEventBlocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var l *store.Limiter
		told := make(chan store.EventKind, 10)
		s := newStore(t, w.hooked, store.Options{OnEvent: func(e store.Event) {
			l.Statistics()
			time.Sleep(time.Minute)
			told <- e.Kind
		}})
		l = must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		other := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(l, 1)
		require.NoError(t, other.Reconfigure(bucketOf(20, 1, time.Hour, 0)))
		require.Zero(t, timed(func() { w.granted(l, 1) }))
		w.hooked.Fail(errDead)
		require.Zero(t, timed(func() {
			for range 5 {
				w.rejected(l, 1)
			}
		}))
		w.pass(3 * time.Minute)
		require.Equal(t, store.EventReconfigured, <-told)
		require.Equal(t, store.EventStoreLost, <-told)
		synctest.Wait()
	})
}
