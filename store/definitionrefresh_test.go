package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// An instance whose callers all want more permits than the known limit learns of a raised limit, also without notices.
func TestAcquire_MoreThanTheLimitWas(t *testing.T) {
	for _, used := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.bucket(10, 1, time.Hour, 0, nil)
			use(t, a)
			l := must(w.instance(store.Options{NoListen: true}).TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
			if used {
				use(t, l)
			}
			time.Sleep(2 * time.Second)
			require.NoError(t, a.Reconfigure(bucketOf(100, 1, time.Hour, 0)))
			w.pass(10 * time.Second)
			w.granted(l, 50)
		})
	}
}

// Without notices, waiting callers learn of a raise at another instance, too.
func TestAcquire_LimitRaisedElsewhereWithoutListening(t *testing.T) {
	for name, cut := range map[string]bool{"NoListen": false, "unsupported": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				hour := func(limit int) limiter.FixedWindowOptions {
					return limiter.FixedWindowOptions{PermitLimit: limit, Window: time.Hour, QueueLimit: 5}
				}
				a := must(w.instance(store.Options{}).FixedWindow("it", hour(10), nil))(t)
				w.granted(a, 10)
				w.NoListen(cut)
				b := must(w.instance(store.Options{NoListen: !cut}).FixedWindow("it", hour(10), nil))(t)
				w.rejected(b, 1)
				waiting := w.acquire(b, 1)
				w.waits(waiting)
				require.NoError(t, a.Reconfigure(hour(100)))
				calls := w.Calls("Load")
				w.pass(11 * time.Second)
				w.served(waiting)
				require.LessOrEqual(t, waiting.took, 11*time.Second)
				require.LessOrEqual(t, w.Calls("Load")-calls, 4)
			})
		})
	}
}

// While the store is away, waiting callers do not load the limits.
func TestAcquire_NoRefreshWhileTheStoreIsAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(4, 1, time.Hour, 5, &store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.25})
		w.granted(l, 4)
		first, second := w.acquire(l, 1), w.acquire(l, 1)
		w.hooked.Fail(errDead)
		w.pass(time.Hour + time.Minute)
		require.Len(t, w.events.of(store.EventStoreLost), 1)
		calls := w.Calls("Load")
		w.pass(time.Hour)
		w.served(first)
		w.waits(second)
		require.Equal(t, calls, w.Calls("Load"))
		w.hooked.Fail(nil)
		w.pass(time.Hour)
		w.served(second)
	})
}
