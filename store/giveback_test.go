package store_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// jitter makes every call to the store take up to 100 ms on its way there and back.
func (w *world) jitter() {
	wait := func(string) error {
		time.Sleep(rand.N(100 * time.Millisecond))
		return nil
	}
	w.hook(wait, wait)
}

// A caller finds what it has given back, in whatever order round trips reach the store.
func TestGiveBacks_CallerFindsItsPermits(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), subtest(func(t *testing.T, w *world) {
			o := limitertest.Limits{Permits: 10, Period: 24 * time.Hour, TokensPerPeriod: 1, Segments: 2}
			l := build(t, w.instance(store.Options{}), k, o, nil)
			w.granted(l, 0)
			w.jitter()
			chain := must(limiter.Chain(l, rejecting{}))(t)
			for i := range 50 {
				lease := w.try(chain, 10)
				require.False(t, lease.Acquired())
				require.NotEqual(t, limiter.ReasonNoPermit, lease.Reason(), "the second limiter rejects, not the first one")
				switch i % 3 {
				case 0:
					require.True(t, must(l.Peek(w.ctx, 10))(t).Acquired())
				case 1:
					require.EqualValues(t, 10, l.Statistics().AvailablePermits)
				}
				half, rest := w.try(l, 5), w.try(l, 5)
				require.True(t, half.Acquired() && rest.Acquired(), "round %d", i)
				half.Refund() // the second can reach the store first
				rest.Refund()
				w.pass(rand.N(30 * time.Millisecond))
			}
			w.hook(nil, nil)
			w.pass(time.Second)
		}))
	}
}

// A call takes a second round trip only if it has taken nothing while permits of its key are on their way back.
func TestGiveBacks_RoundTrips(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := must(w.instance(store.Options{}).PartitionedTokenBucket("keys", bucketOf(10, 1, time.Hour, 10), nil))(t)
		all := must(p.TryAcquire(w.ctx, "a", 2))(t)
		_ = must(p.TryAcquire(w.ctx, "b", 10))(t)
		w.Delay(20 * time.Millisecond)
		takes := func(key string, n int) (took time.Duration, granted bool) {
			took = timed(func() { granted = must(p.TryAcquire(w.ctx, key, n))(t).Acquired() })
			return took, granted
		}
		took, granted := takes("a", 9)
		require.False(t, granted)
		require.Equal(t, 20*time.Millisecond, took)

		lease, begun := must(p.TryAcquire(w.ctx, "a", 1))(t), time.Now()
		lease.Refund()
		took, granted = takes("b", 1)
		require.False(t, granted)
		require.LessOrEqual(t, took, 30*time.Millisecond, "another key")
		w.pass(time.Second - time.Since(begun))

		all.Refund()
		took, granted = takes("a", 8)
		require.True(t, granted)
		require.LessOrEqual(t, took, 30*time.Millisecond, "it is granted without what is on its way")
		w.pass(time.Second)
		for range 10 { // rejected while permits are given back all the time
			lease := must(p.TryAcquire(w.ctx, "a", 1))(t)
			synctest.Wait()
			lease.Refund()
			took, granted = takes("a", 10)
			require.False(t, granted)
			require.LessOrEqual(t, took, 60*time.Millisecond)
		}
	})
}

// If the second answer is late, the caller is rejected by the first one, also by FailOpen, and nothing stays taken.
func TestGiveBacks_LateSecondAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, 24*time.Hour, 0, &store.LimiterOptions{Outage: store.FailOpen})
		lease := w.granted(l, 10)
		w.Delay(20 * time.Millisecond)
		refunded := make(chan struct{})
		first := true
		w.hook(func(string) error {
			if first { // the refund is overtaken
				first = false
				time.Sleep(25 * time.Millisecond)
				close(refunded)
			}
			return nil
		}, nil)
		lease.Refund()
		synctest.Wait()
		ctx := answerby.With(w.ctx, time.Now().Add(50*time.Millisecond))
		require.False(t, must(l.TryAcquire(ctx, 5))(t).Acquired())
		<-refunded
		w.pass(time.Second)
		require.EqualValues(t, 10, l.Statistics().AvailablePermits)
	})
}
