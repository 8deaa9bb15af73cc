package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// together makes n calls at once and returns how many permits were granted.
func (w *world) together(n int, ask func(i int) (limiter.Lease, error)) (granted int64) {
	var sum atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lease, err := ask(i)
			if err != nil {
				w.Error(err)
			}
			sum.Add(int64(lease.Permits()))
		})
	}
	wg.Wait()
	return sum.Load()
}

func TestBatcher_CallsForOneKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(300, 1, time.Hour, 0, nil)
		w.granted(l, 0)
		w.Delay(10 * time.Millisecond)
		before := w.Calls("Decide")
		got := w.together(1000, func(int) (limiter.Lease, error) { return l.TryAcquire(w.ctx, 1) })
		require.EqualValues(t, 300, got)
		require.LessOrEqual(t, w.Calls("Decide")-before, 6, "one alone, and 999 by 256")
		require.EqualValues(t, 700, l.Statistics().FailedLeases)
	})
}

// Calls that share a round trip are decided in the order of their arrival.
func TestBatcher_OrderOfArrival(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		w.granted(l, 0)
		w.Delay(10 * time.Millisecond)
		var leases [6]limiter.Lease
		for i, n := range []int{1, 4, 6, 5, 1, 0} { // the first flies alone
			go func() { leases[i], _ = l.TryAcquire(w.ctx, n) }()
			synctest.Wait()
		}
		w.pass(time.Second)
		for i, want := range []int{1, 4, -1, 5, -1, -1} {
			require.Equal(t, want >= 0, leases[i].Acquired(), "call %d", i)
			require.Equal(t, max(want, 0), leases[i].Permits(), "call %d", i)
		}
		d, ok := leases[4].RetryAfter()
		require.True(t, ok)
		require.InDelta(t, time.Hour, d, float64(time.Minute))
	})
}

func TestBatcher_CallerLeaves(t *testing.T) {
	for _, how := range []*store.LimiterOptions{nil, {Block: 8}} {
		t.Run(fmt.Sprintf("%+v", how), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := w.bucket(10, 1, time.Hour, 0, how)
				w.granted(l, 0)
				w.Delay(100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(w.ctx, 10*time.Millisecond)
				defer cancel()
				took := timed(func() {
					_, err := l.TryAcquire(ctx, 4)
					require.ErrorIs(t, err, context.DeadlineExceeded)
				})
				require.Equal(t, 10*time.Millisecond, took)
				w.Delay(0)
				w.pass(2 * time.Second)
				require.EqualValues(t, 10, l.Statistics().AvailablePermits)
				require.Zero(t, l.Statistics().SuccessfulLeases-1, "the zero in the beginning is the only success")
			})
		})
	}
}

// After a reconfiguration, callers of other keys do not wait for the conversion of one key, and many keys are converted
// in time.
func TestBatcher_RetryOfOneKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{CallTimeout: 100 * time.Millisecond})
		p := must(s.PartitionedTokenBucket("keys", bucketOf(5, 1, time.Hour, 0), nil))(t)
		other := must(s.PartitionedTokenBucket("other", bucketOf(5, 1, time.Hour, 0), nil))(t)
		_ = must(other.TryAcquire(w.ctx, "a", 1))(t)
		for i := range 200 {
			_ = must(p.TryAcquire(w.ctx, fmt.Sprint(i), 5))(t)
		}
		require.NoError(t, p.Reconfigure(bucketOf(6, 1, time.Hour, 0)))
		w.hook(slow(5*time.Millisecond, "Replace"), nil)
		w.Delay(2 * time.Millisecond)
		var slow atomic.Bool
		granted := w.together(1200, func(i int) (limiter.Lease, error) {
			if i < 1000 {
				begun := time.Now()
				lease, err := other.TryAcquire(w.ctx, fmt.Sprint("k", i), 1)
				if time.Since(begun) > 20*time.Millisecond {
					slow.Store(true)
				}
				return lease, err
			}
			return p.TryAcquire(w.ctx, fmt.Sprint(i-1000), 1)
		})
		require.EqualValues(t, 1000+200, granted, "each of the keys has one more now")
		require.False(t, slow.Load(), "the others waited for the conversions")
		require.Zero(t, s.Counters().Outages)
	})
}

// If one key cannot be converted, only its callers fail.
func TestBatcher_FailedConversion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		p := must(s.PartitionedTokenBucket("keys", bucketOf(5, 1, time.Hour, 0), nil))(t)
		_ = must(p.TryAcquire(w.ctx, "old", 5))(t)
		require.NoError(t, p.Reconfigure(bucketOf(6, 1, time.Hour, 0)))
		w.hook(failing(errors.New("no"), "Replace"), nil)
		lease := must(p.TryAcquire(w.ctx, "old", 1))(t)
		require.Equal(t, limiter.ReasonUnavailable, lease.Reason())
		lease = must(p.TryAcquire(w.ctx, "new", 6))(t)
		require.True(t, lease.Acquired())
	})
}

// The batches of a round trip are sorted and each has another key, also if a limiter was closed and made again.
func TestBatcher_BatchesAreSorted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		w.see = func(batches []*backend.Batch) {
			for i, b := range batches[1:] {
				a := batches[i]
				if a.Definition.Name > b.Definition.Name || a.Definition.Name == b.Definition.Name && a.Key >= b.Key {
					t.Errorf("%s/%s comes before %s/%s", a.Definition.Name, a.Key, b.Definition.Name, b.Key)
				}
			}
		}
		first := must(s.TokenBucket("b", bucketOf(100, 1, time.Hour, 0), nil))(t)
		also := must(s.TokenBucket("a", bucketOf(100, 1, time.Hour, 0), nil))(t)
		lease := w.granted(first, 5)
		w.granted(also, 1)
		require.NoError(t, first.Close())
		second := must(s.TokenBucket("b", bucketOf(100, 1, time.Hour, 0), nil))(t)
		w.granted(second, 1)
		w.Delay(10 * time.Millisecond)
		w.together(200, func(i int) (limiter.Lease, error) {
			if i == 100 {
				lease.Adjust(2)
			}
			return []limiter.Limiter{second, also}[i%2].TryAcquire(w.ctx, 1)
		})
	})
}

// No call waits for two round trips: each has its answer after one and the pause, whatever else is under way.
func TestBatcher_OneRoundTrip(t *testing.T) {
	for _, latency := range []time.Duration{8 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				how := &store.LimiterOptions{Outage: store.FailOpen}
				s := w.instance(store.Options{})
				p := must(s.PartitionedFixedWindow("windows", limiter.FixedWindowOptions{PermitLimit: 1000, Window: time.Hour}, how))(t)
				w.Delay(latency)
				_ = must(p.TryAcquire(w.ctx, "key", 0))(t)
				const calls = 3000 // 300 a second
				var granted, byPolicy atomic.Int64
				var slowest, most atomic.Int64
				var all sync.WaitGroup
				for range calls {
					all.Go(func() {
						begun := time.Now()
						lease, err := p.TryAcquire(answerby.With(w.ctx, begun.Add(latency*15/8)), "key", 1)
						if err != nil {
							w.Error(err)
						}
						slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
						granted.Add(int64(lease.Permits()))
						if _, ok := store.OutageKey.From(lease); ok {
							byPolicy.Add(1)
						}
					})
					time.Sleep(time.Second / 300)
					most.Store(max(most.Load(), int64(w.underWay.Load())))
				}
				all.Wait()
				require.Zero(t, byPolicy.Load())
				require.EqualValues(t, 1000, granted.Load())
				require.LessOrEqual(t, time.Duration(slowest.Load()), latency+max(time.Millisecond, latency/8))
				require.LessOrEqual(t, most.Load(), int64(9), "8 of a batcher, and the one that loads the limits again")
			})
		})
	}
}

// Two calls of one request do not wait for each other, whichever batchers they use.
func TestBatcher_TwoCallsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		p := must(s.PartitionedTokenBucket("keys", bucketOf(5, 1, time.Hour, 0), nil))(t)
		_ = must(p.TryAcquire(w.ctx, "", 1))(t)
		w.Delay(8 * time.Millisecond)
		for i := range 20 {
			took := timed(func() {
				w.together(2, func(j int) (limiter.Lease, error) { return p.TryAcquire(w.ctx, fmt.Sprint(i, j), 1) })
			})
			require.LessOrEqual(t, took, 9*time.Millisecond)
		}
	})
}

// Calls use half of the connections at most. With four or more, none waits for two round trips.
func TestBatcher_Connections(t *testing.T) {
	for connections, want := range map[int]struct {
		underWay int64
		slowest  time.Duration
	}{
		1: {1, 200}, 3: {1, 200}, 4: {2, 150}, 7: {3, 134}, 8: {4, 150}, 15: {6, 150}, 16: {8, 150}, 64: {32, 113}, 1000: {32, 113},
	} {
		if testing.Short() && connections%2 != 0 {
			continue
		}
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := newStore(t, pooled{w.hooked, connections}, store.Options{})
				p := must(s.PartitionedTokenBucket("keys", bucketOf(1000, 1, time.Hour, 0), nil))(t)
				w.Delay(100 * time.Millisecond)
				var slowest, most atomic.Int64
				w.see = func([]*backend.Batch) { most.Store(max(most.Load(), int64(w.underWay.Load())+1)) }
				w.together(4000, func(i int) (limiter.Lease, error) {
					if i >= 100 { // the first of each batcher find out how far the store is
						time.Sleep(time.Second + time.Duration(i)*time.Millisecond/2)
					}
					begun := time.Now()
					lease, err := p.TryAcquire(w.ctx, fmt.Sprint(i%100), 1)
					if i >= 100 {
						slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
					}
					return lease, err
				})
				require.LessOrEqual(t, most.Load(), want.underWay)
				require.LessOrEqual(t, time.Duration(slowest.Load()), want.slowest*time.Millisecond)
			})
		})
	}
}

type pooled struct {
	*hooked
	connections int
}

func (p pooled) Connections() int { return p.connections }

// A round trip to a near store that hangs delays the calls in it, and no later ones.
func TestBatcher_OneHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1000, 1, time.Hour, 0, nil)
		w.granted(l, 0)
		goOn := make(chan struct{})
		var hangs atomic.Bool
		hangs.Store(true)
		w.hook(func(method string) error {
			if method == "Decide" && hangs.CompareAndSwap(true, false) {
				<-goOn
			}
			return nil
		}, nil)
		w.Delay(100 * time.Microsecond)
		go func() { _, _ = l.TryAcquire(w.ctx, 1) }()
		synctest.Wait()
		for range 100 {
			require.LessOrEqual(t, timed(func() { w.granted(l, 1) }), 1100*time.Microsecond)
			require.Equal(t, 100*time.Microsecond, timed(func() { w.granted(l, 1) }))
		}
		close(goOn)
	})
}

// While the server is silent, no more than maxRoundTrips of a batcher are under way, and all end with it.
func TestBatcher_SilentStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1000, 1, time.Hour, 0, &store.LimiterOptions{Outage: store.FailOpen})
		w.granted(l, 0)
		w.Stall(true)
		begun := time.Now()
		var most int64
		var all sync.WaitGroup
		for range 3000 {
			all.Go(func() { w.try(l, 1) })
			time.Sleep(time.Millisecond)
			most = max(most, int64(w.underWay.Load()))
		}
		all.Wait()
		require.LessOrEqual(t, most, int64(10), "8 of a batcher, a probe, and a load of the limits")
		lost := w.events.of(store.EventStoreLost)
		require.Len(t, lost, 1)
		require.Less(t, time.Since(begun), 4*time.Second)
		w.Stall(false)
		w.pass(2 * time.Second)
		require.Zero(t, w.underWay.Load())
		w.granted(l, 1)
	})
}
