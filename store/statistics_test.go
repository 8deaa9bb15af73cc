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

// A metrics collection that must not wait for the network passes a context that has ended.
func TestStatisticsContext_EndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{CallTimeout: 300 * time.Millisecond})
		bucket := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		seats := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t)
		keyed := must(s.PartitionedTokenBucket("keyed", bucketOf(10, 1, time.Hour, 0), nil))(t)
		w.granted(bucket, 4)
		w.granted(seats, 4)
		require.EqualValues(t, 6, bucket.StatisticsContext(w.ctx).AvailablePermits)
		require.EqualValues(t, 6, seats.StatisticsContext(w.ctx).AvailablePermits)

		w.Stall(true)
		synctest.Wait()
		all := map[string]func(context.Context) limiter.Statistics{
			"bucket": bucket.StatisticsContext,
			"seats":  seats.StatisticsContext,
			"keyed": func(ctx context.Context) limiter.Statistics {
				return must(keyed.StatisticsContext(ctx, "key"))(t)
			},
		}
		known := map[string]int64{"bucket": 6, "seats": 6, "keyed": 10}
		for name, statistics := range all {
			ended, cancel := context.WithCancel(w.ctx)
			cancel()
			calls := w.Calls()
			require.Zero(t, timed(func() { require.Equal(t, known[name], statistics(ended).AvailablePermits, name) }), name)
			require.Equal(t, calls, w.Calls(), "%s: no round trip", name)

			soon, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
			require.Equal(t, 20*time.Millisecond, timed(func() { require.Equal(t, known[name], statistics(soon).AvailablePermits, name) }), name)
			cancel()
		}
		require.LessOrEqual(t, timed(func() { bucket.Statistics() }), 300*time.Millisecond, "CallTimeout")
		w.Stall(false)
	})
}
