package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

var (
	_ limiter.Peeker                    = (*store.Limiter)(nil)
	_ custom.KeyPeeker                  = (*store.Partitioned)(nil)
	_ limiter.PartitionedPeeker[string] = (*store.Partitioned)(nil)
)

func (w *world) peek(p limiter.Peeker, n int) limiter.Lease {
	w.Helper()
	lease := must(p.Peek(w.ctx, n))(w.T)
	lease.Release()
	lease.Refund()
	synctest.Wait()
	return lease
}

// peekOptions are the ways in which a limiter can answer.
var peekOptions = map[string]*store.LimiterOptions{
	"usual": nil, "cached": {CacheRejections: true}, "blocks": {Block: 8},
}

// With and without calls of Peek in between, all answers and figures are the same, and what Peek says is what TryAcquire
// does.
func TestPeek_ChangesNothing(t *testing.T) {
	for _, k := range kinds {
		for name, how := range peekOptions {
			if k == limitertest.Concurrency && (name == "blocks" || name == "cached") {
				continue
			}
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				seeds := uint64(20)
				if testing.Short() {
					seeds = 2
				}
				for seed := range seeds {
					synctest.Test(t, func(t *testing.T) {
						l := limitertest.Limits{Permits: 10, Period: 10 * time.Second, TokensPerPeriod: 3, Segments: 5}
						with := build(t, newStore(t, storetest.NewMemory(), store.Options{}), k, l, how)
						without := build(t, newStore(t, storetest.NewMemory(), store.Options{}), k, l, how)
						comparePeeked(t, rand.New(rand.NewPCG(seed, uint64(k))), with, without, name)
					})
				}
			})
		}
	}
}

func comparePeeked(t *testing.T, r *rand.Rand, with, without *store.Limiter, how string) {
	var trace strings.Builder
	var leases [2][]limiter.Lease
	for range 150 {
		n := r.IntN(6) * r.IntN(3)
		fmt.Fprintln(&trace, n)
		peeked, peekErr := with.Peek(t.Context(), n)
		peeked.Release()
		peeked.Refund()
		var got [2]limiter.Lease
		for i, l := range []*store.Limiter{with, without} {
			lease, err := l.TryAcquire(t.Context(), n)
			require.Equal(t, fmt.Sprint(peekErr), fmt.Sprint(err), &trace)
			if got[i] = lease; lease.Acquired() && n > 0 {
				leases[i] = append(leases[i], lease)
			}
			synctest.Wait()
		}
		require.Equal(t, answerOf(got[1]), answerOf(got[0]), &trace)
		require.Equal(t, answerOf(got[0]), answerOf(peeked), "Peek, %s", &trace)
		if left, known := peeked.Remaining(); known {
			want, _ := got[0].Remaining()
			require.Equal(t, want, left, &trace)
		}
		require.Equal(t, without.Statistics(), with.Statistics(), &trace)
		if n := len(leases[0]); n > 0 && r.IntN(2) == 0 {
			i := r.IntN(n)
			leases[0][i].Release()
			leases[1][i].Release()
			synctest.Wait()
		}
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(8 * time.Second))))
			synctest.Wait()
		}
	}
}

// answerOf is an answer, without what a lease holds.
func answerOf(l limiter.Lease) string {
	after, _ := l.RetryAfter()
	return fmt.Sprint(l.Acquired(), l.Permits(), after, l.Reason())
}

// The answer is that of the outage policy, which counts and takes nothing either.
func TestPeek_WithoutTheStore(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *world, s *store.Store, l limiter.Limiter, how store.LimiterOptions) {
		p := l.(limiter.Peeker)
		require.True(t, w.peek(p, 10).Acquired())
		w.hooked.Fail(errDead)
		for range 5 { // past the threshold
			w.peek(p, 1)
		}
		require.ErrorIs(t, s.Health().Err, errDead)
		outages := s.Counters().Outages
		for _, n := range []int{0, 1, 5, 6, 10} {
			lease := w.peek(p, n)
			err, ok := store.OutageKey.From(lease)
			require.True(t, ok)
			require.ErrorIs(t, err, store.ErrUnavailable)
			want := map[store.OutagePolicy]bool{store.FailClosed: false, store.FailOpen: true, store.FallBackLocally: n <= 5}[how.Outage]
			require.Equal(t, want, lease.Acquired(), "%d", n)
			if !want {
				require.Equal(t, limiter.ReasonUnavailable, lease.Reason())
				_, ok := lease.RetryAfter()
				require.True(t, ok)
			}
		}
		require.Equal(t, outages, s.Counters().Outages, "no permits were asked for")
		w.answersWithout(l, how) // nothing was taken of the local share
	})
}

func TestPeek_OneRoundTrip(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		bucket := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 10), nil))(t)
		w.granted(bucket, 4)
		granted := bucket.Statistics()
		calls := w.Calls()
		for n := range 10 {
			require.Equal(t, n <= 6, w.peek(bucket, n).Acquired())
		}
		require.Equal(t, 10, w.Calls()-calls)
		require.Equal(t, granted, bucket.Statistics())

		waiter := w.acquire(bucket, 8)
		w.waits(waiter)
		calls = w.Calls()
		lease := w.peek(bucket, 1)
		require.False(t, lease.Acquired(), "a waiter is before it")
		require.Equal(t, answerOf(w.try(bucket, 1)), answerOf(lease))
		require.Equal(t, calls, w.Calls(), "the queue decides")
		require.True(t, w.peek(bucket, 0).Acquired(), "zeros overtake no waiter")
		w.waits(waiter)
		waiter.cancel()
		synctest.Wait()
	})
}
