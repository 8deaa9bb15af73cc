package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

func short(ttl time.Duration) *store.LimiterOptions { return &store.LimiterOptions{LeaseTTL: ttl} }

func isLost(lease limiter.Lease) bool {
	lost, ok := store.LostKey.From(lease)
	if !ok {
		return false
	}
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

func TestLease_Renewed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l, other := w.concurrency(2, 0, store.Options{}, short(3*time.Second)), w.concurrency(2, 0, store.Options{}, short(3*time.Second))
		lease := w.granted(l, 2)
		w.pass(time.Hour)
		w.rejected(other, 1)
		require.False(t, isLost(lease))
		require.InDelta(t, 3600, w.Calls("Renew"), 100, "three times in a TTL")
		lease.Release()
		synctest.Wait()
		calls := w.Calls()
		w.pass(time.Hour)
		require.Equal(t, calls, w.Calls(), "nothing is held")
		w.granted(other, 2)
	})
}

// A lease with a short TTL is renewed in time while one with a long TTL is held.
func TestLease_ShortNextToLong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		long := must(s.Concurrency("long", limiter.ConcurrencyOptions{PermitLimit: 1}, short(10*time.Hour)))(t)
		brief := must(s.Concurrency("brief", limiter.ConcurrencyOptions{PermitLimit: 1}, short(100*time.Millisecond)))(t)
		w.granted(long, 1)
		w.pass(time.Minute)
		lease := w.granted(brief, 1)
		w.pass(time.Minute)
		require.False(t, isLost(lease))
		require.Empty(t, w.events.of(store.EventLeaseLost))
	})
}

// A renewal that hangs for CallTimeout loses no lease, although that is nearly as long as the TTL.
func TestLease_RenewalHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lease := w.granted(w.concurrency(1, 0, store.Options{}, short(600*time.Millisecond)), 1)
		var renewals atomic.Int32
		w.hook(func(method string) error {
			if method == "Renew" && renewals.Add(1)%9 == 1 {
				time.Sleep(time.Second)
			}
			return nil
		}, nil)
		w.pass(time.Minute)
		require.False(t, isLost(lease))
		w.hook(nil, nil)
		w.pass(time.Second)
	})
}

// A lease that cannot be renewed is reported as lost no later than others can have its permits. Its release has no
// effect then.
func TestLease_Lost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sick := &hooked{Memory: w.Memory}
		s := newStore(t, sick, store.Options{OnEvent: w.events.add})
		l := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1}, short(3*time.Second)))(t)
		other := w.concurrency(1, 5, store.Options{}, short(3*time.Second))
		zombie := w.granted(l, 1)
		w.pass(time.Minute)
		sick.hook(func(string) error { return errDead }, nil)
		next := w.acquire(other, 1)
		var both time.Duration
		for !next.done.Load() {
			require.LessOrEqual(t, both, 5*time.Second)
			w.pass(10 * time.Millisecond)
			both += 10 * time.Millisecond
			if next.done.Load() {
				require.True(t, isLost(zombie), "it was told before")
			}
		}
		lost := w.events.of(store.EventLeaseLost)
		require.Len(t, lost, 1)
		require.Equal(t, "seats", lost[0].Limiter)
		require.EqualValues(t, 1, lost[0].Permits)
		was, _ := store.FenceKey.From(zombie)
		is, _ := store.FenceKey.From(next.lease)
		require.Greater(t, is, was)
		sick.hook(nil, nil)
		w.pass(3 * time.Second)
		zombie.Release()
		w.pass(time.Second)
		w.rejected(other, 1)
		w.rejected(l, 1)
	})
}

// The store loses a lease, as one without a disk does.
func TestLease_LostByTheStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.concurrency(1, 0, store.Options{}, short(3*time.Second))
		lease := w.granted(l, 1)
		w.Forget()
		w.pass(2 * time.Second)
		require.True(t, isLost(lease))
		require.Len(t, w.events.of(store.EventLeaseLost), 1)
		lease.Release()
		w.granted(l, 1)
	})
}

// An acquisition whose answer is lost, and that reaches the store after its release, holds the permits until the release is repeated,
// and not for its TTL.
func TestLease_ReleaseOvertakesItsAcquisition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := must(newStore(t, &acquiringLate{hooked: w.hooked}, store.Options{}).Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1}, nil))(t)
		other := w.concurrency(1, 0, store.Options{}, nil)
		w.granted(other, 0)
		require.Equal(t, limiter.ReasonUnavailable, w.rejected(l, 1).Reason())
		w.pass(2 * time.Second)
		w.rejected(other, 1)
		w.pass(10 * time.Second) // of the 30 s of its TTL
		w.granted(other, 1)
	})
}

// An acquiringLate backend carries out acquisitions after a second, and loses their answers.
type acquiringLate struct{ *hooked }

func (b *acquiringLate) Acquire(ctx context.Context, all []*backend.LeaseRequest) error {
	if all[0].Permits == 0 { // statistics
		return b.hooked.Acquire(ctx, all)
	}
	time.Sleep(time.Second)
	_ = b.hooked.Acquire(context.WithoutCancel(ctx), all)
	return errDead
}

func TestLease_ReleaseDuringAnOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.concurrency(1, 5, store.Options{}, short(30*time.Second))
		other := w.concurrency(1, 5, store.Options{}, short(30*time.Second))
		lease := w.granted(l, 1)
		w.hooked.Fail(errDead)
		lease.Release()
		w.pass(2 * time.Second)
		w.hooked.Fail(nil)
		w.pass(10 * time.Second)
		w.granted(other, 1)
		require.Empty(t, w.events.of(store.EventLeaseLost))
	})
}

func TestLease_ReleaseAfterClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 2}, short(3*time.Second)))(t)
		other := w.concurrency(2, 0, store.Options{}, short(3*time.Second))
		first, second := w.granted(l, 1), w.granted(l, 1)
		require.NoError(t, l.Close())
		w.pass(time.Minute)
		w.rejected(other, 1)
		first.Release()
		synctest.Wait()
		w.granted(other, 1).Release()
		require.NoError(t, s.Close())
		synctest.Wait()
		calls := w.Calls()
		second.Release()
		synctest.Wait()
		require.Equal(t, calls, w.Calls(), "a closed store asks nothing")
		w.pass(3 * time.Second)
		w.granted(other, 2)
		require.Empty(t, w.events.of(store.EventLeaseLost))
	})
}

func TestLease_ManyRenewedTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		p := must(s.PartitionedConcurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1}, short(30*time.Second)))(t)
		leases := make([]limiter.Lease, 2000)
		w.together(len(leases), func(i int) (lease limiter.Lease, err error) {
			leases[i], err = p.TryAcquire(w.ctx, fmt.Sprint(i), 1)
			return leases[i], err
		})
		w.Delay(time.Millisecond)
		w.pass(31 * time.Second)
		require.LessOrEqual(t, w.Calls("Renew"), 3*20)
		require.Empty(t, w.events.of(store.EventLeaseLost))
		w.pass(time.Minute)
		require.Empty(t, w.events.of(store.EventLeaseLost))
		for _, lease := range leases {
			lease.Release()
		}
		w.pass(time.Second)
		require.Zero(t, w.Keys())
		require.LessOrEqual(t, w.Calls("Release"), 40)
	})
}

// While nothing is held, the only goroutine is the one that listens.
func TestLease_NoGoroutineWithoutLeases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.concurrency(1, 5, store.Options{NoListen: true}, nil)
		b := must(w.instance(store.Options{NoListen: true}).TokenBucket("b", bucketOf(100, 1, time.Second, 5), &store.LimiterOptions{Block: 10}))(t)
		lease := w.granted(l, 1)
		waiting := w.acquire(l, 1)
		lease.Release()
		synctest.Wait()
		w.served(waiting).Release()
		for range 20 {
			w.granted(b, 1)
		}
		w.pass(3 * time.Second)
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		for one := range strings.SplitSeq(string(all), "\n\n") {
			if strings.Contains(one, "weir/store.(") && !strings.Contains(one, "_test.go") && strings.Contains(one, "synctest bubble") {
				t.Errorf("it is still there:\n%s", one)
			}
		}
	})
}

// A caller finds the permits that it has given back, whichever of the two calls reaches the store first.
func TestConcurrency_AcquisitionOvertakesRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		l := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1}, nil))(t)
		lease := w.granted(l, 1)
		w.Delay(10 * time.Millisecond)
		w.hook(slow(100*time.Millisecond, "Release"), nil)
		for range 5 {
			require.Equal(t, 10*time.Millisecond, timed(func() { w.rejected(l, 1) }))
			lease.Release()
			require.Equal(t, 120*time.Millisecond, timed(func() { lease = w.granted(l, 1) }))
		}
		lease.Release()
		require.True(t, must(l.Peek(w.ctx, 1))(t).Acquired())
		lease = w.granted(l, 1)
		lease.Release()
		require.EqualValues(t, 1, l.Statistics().AvailablePermits)
	})
}

// A lease of a far store is granted in one round trip and a pause, however many others are released meanwhile.
func TestConcurrency_FarStore(t *testing.T) {
	const latency = 100 * time.Millisecond
	for _, keys := range []int{1, 50} {
		t.Run(fmt.Sprint(keys), subtest(func(t *testing.T, w *world) {
			s := w.instance(store.Options{})
			p := must(s.PartitionedConcurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 1000}, nil))(t)
			w.Delay(latency)
			w.together(100, func(i int) (limiter.Lease, error) { return p.TryAcquire(w.ctx, fmt.Sprint(i), 0) })
			var slowest, granted atomic.Int64
			var all sync.WaitGroup
			for i := range 3000 {
				all.Go(func() {
					begun := time.Now()
					lease, err := p.TryAcquire(w.ctx, fmt.Sprint(i%keys), 1)
					slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
					if err == nil && lease.Acquired() {
						granted.Add(1)
					}
					time.Sleep(rand.N(time.Second))
					lease.Release()
				})
				time.Sleep(3 * time.Millisecond)
			}
			all.Wait()
			require.LessOrEqual(t, time.Duration(slowest.Load()), latency*9/8)
			require.EqualValues(t, 3000, granted.Load())
			require.Zero(t, s.Counters().Outages)
		}))
	}
}
