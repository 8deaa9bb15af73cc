package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store"
)

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
