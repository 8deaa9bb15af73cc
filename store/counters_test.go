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

// gained returns what the counters have gained since the last call. Calls and Failures are not compared.
func gained(s *store.Store) func() store.Counters {
	var before store.Counters
	return func() store.Counters {
		synctest.Wait()
		now := s.Counters()
		c := store.Counters{
			Decisions: now.Decisions - before.Decisions, Cached: now.Cached - before.Cached,
			FromBlocks: now.FromBlocks - before.FromBlocks, Outages: now.Outages - before.Outages,
		}
		before = now
		return c
	}
}

// Each answer counts once, by what has decided. A call that failed is decided by the outage policy only.
func TestCounters_Decisions(t *testing.T) {
	byStore, byCache := store.Counters{Decisions: 1}, store.Counters{Cached: 1}
	byOutage := store.Counters{Outages: 1}
	for name, how := range peekOptions {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := w.instance(store.Options{FailureThreshold: 1000})
				l := must(s.TokenBucket("bucket", bucketOf(2, 1, time.Hour, 0), how))(t)
				count := gained(s)

				again := byStore
				if name == "cached" || name == "blocks" {
					again = byCache
				}
				lease := w.granted(l, 1)
				require.Equal(t, byStore, count(), "granted")
				w.hooked.Fail(errors.New("gone"))
				w.rejected(l, 1)
				require.Equal(t, byOutage, count(), "failed")
				w.hooked.Fail(nil)
				w.granted(l, 1)
				require.Equal(t, byStore, count(), "granted after a failed call")
				w.rejected(l, 1)
				require.Equal(t, byStore, count(), "rejected")
				w.rejected(l, 1)
				require.Equal(t, again, count(), "rejected again")

				count()
				_ = must(l.Peek(t.Context(), 1))(t)
				l.Statistics()
				lease.Refund()
				require.Zero(t, count(), "nothing was decided")
				require.NoError(t, l.Reconfigure(bucketOf(20, 1, time.Hour, 0)))
				require.Zero(t, count(), "reconfigured")
				w.granted(l, 5)
				require.Equal(t, byStore, count(), "granted by the new limits")
			})
		})
	}
}

// All grants but the first few are from blocks.
func TestCounters_FromBlocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.TokenBucket("bucket", bucketOf(100, 1, time.Hour, 0), &store.LimiterOptions{Block: 25}))(t)
		count := gained(s)
		for range 50 {
			w.granted(l, 1)
		}
		require.Equal(t, store.Counters{Decisions: 2, FromBlocks: 48}, count())
	})
}

// A call that is sent again because another instance has changed the limits is one decision.
func TestCounters_DecisionSentAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{NoListen: true})
		l := must(s.TokenBucket("bucket", bucketOf(5, 1, time.Hour, 0), nil))(t)
		count := gained(s)
		w.granted(l, 1)
		require.Equal(t, store.Counters{Decisions: 1}, count())
		require.NoError(t, w.bucket(7, 1, time.Hour, 0, nil).Reconfigure(bucketOf(9, 1, time.Hour, 0)))
		w.granted(l, 1)
		require.Equal(t, 9, l.Limits().Permits)
		require.Equal(t, store.Counters{Decisions: 1}, count())
	})
}

// Renewals and releases of leases are no decisions.
func TestCounters_DecisionsOfLeases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1}, nil))(t)
		count := gained(s)
		lease := w.granted(l, 1)
		w.rejected(l, 1)
		require.Equal(t, store.Counters{Decisions: 2}, count())
		w.pass(time.Hour)
		lease.Release()
		_ = must(l.Peek(t.Context(), 1))(t)
		l.Statistics()
		require.Zero(t, count())
	})
}

// A call that waits counts when it joins the queue, and each time that it is asked for again. A waiter behind one that is
// rejected is not decided.
func TestCounters_DecisionsOfWaiters(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.TokenBucket("bucket", bucketOf(2, 2, time.Second, 10), nil))(t)
		count := gained(s)
		w.granted(l, 2)
		require.Equal(t, store.Counters{Decisions: 1}, count())
		first := w.acquire(l, 2)
		second, third := w.acquire(l, 2), w.acquire(l, 2)
		require.Equal(t, store.Counters{Decisions: 1}, count(), "the others are behind the first one")
		w.pass(time.Second)
		w.served(first)
		require.Equal(t, store.Counters{Decisions: 1}, count(), "one is granted, and nothing is left for the others")
		w.pass(2 * time.Second)
		w.served(second)
		w.served(third)
	})
}
