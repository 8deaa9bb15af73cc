package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// All methods are called at once, with failures, and the Store is closed meanwhile. The race detector must find
// nothing, and the test must end.
func TestStore_ConcurrentSafe(t *testing.T) {
	b := &hooked{Memory: storetest.NewMemory()}
	var troubles atomic.Int64
	b.hook(func(string) error {
		if troubles.Add(1)%50 == 0 {
			return errDead
		}
		return nil
	}, func(string) error {
		if troubles.Add(1)%61 == 0 {
			time.Sleep(3 * time.Millisecond) // longer than CallTimeout, whatever the context says
		}
		return nil
	})
	o := store.Options{CallTimeout: 2 * time.Millisecond, ProbeInterval: 5 * time.Millisecond, RefreshInterval: 5 * time.Millisecond, OnEvent: func(store.Event) {}}
	for range 6 {
		s := must(store.New(b, &o))(t)
		use := uses(t, s)
		const calls = 200 // of each of eight
		var called atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			random := rand.New(rand.NewPCG(uint64(i), 9))
			wg.Go(func() {
				for range calls {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
					use[random.IntN(len(use))](ctx, random)
					cancel()
					called.Add(1)
				}
			})
		}
		for called.Load() < 8*calls/2 { // the others are at work
			time.Sleep(time.Millisecond)
		}
		wg.Go(func() { _ = s.Close() })
		_ = s.Close()
		wg.Wait()
	}
}

// uses returns calls of everything that a Store can do.
func uses(t *testing.T, s *store.Store) (all []func(context.Context, *rand.Rand)) {
	check := func(lease limiter.Lease, err error) limiter.Lease {
		if err != nil && !errors.Is(err, limiter.ErrClosed) && !errors.Is(err, limiter.ErrPermitCount) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return lease
	}
	charge := func(_ limiter.Level, err error) {
		if !errors.Is(err, store.ErrUnavailable) {
			check(limiter.Lease{}, err)
		}
	}
	for i, how := range []*store.LimiterOptions{nil, {Block: 10}, {CacheRejections: true, Outage: store.FailOpen}, {Outage: store.FallBackLocally, LocalShare: 0.5}} {
		o := bucketOf(50, 10, time.Millisecond, 30)
		l := must(s.TokenBucket(fmt.Sprint("b", i), o, how))(t)
		p := must(s.PartitionedTokenBucket(fmt.Sprint("p", i), o, how))(t)
		window := must(s.SlidingWindow(fmt.Sprint("w", i), limiter.SlidingWindowOptions{PermitLimit: 50, Window: 10 * time.Millisecond, SegmentsPerWindow: 10}, how))(t)
		chain := must(limiter.Chain(l, rejecting{}))(t)
		all = append(all,
			func(ctx context.Context, r *rand.Rand) { check(l.TryAcquire(ctx, r.IntN(5))) },
			func(ctx context.Context, r *rand.Rand) { check(l.Acquire(ctx, r.IntN(20))) },
			func(ctx context.Context, r *rand.Rand) { check(l.Acquire(ctx, 5)).Adjust(r.IntN(9)) },
			func(ctx context.Context, r *rand.Rand) { charge(l.Charge(ctx, r.IntN(9)-4)) },
			func(ctx context.Context, r *rand.Rand) { charge(p.Charge(ctx, fmt.Sprint(r.IntN(9)), r.IntN(9)-4)) },
			func(ctx context.Context, r *rand.Rand) { charge(window.Charge(ctx, r.IntN(9)-4)) },
			func(ctx context.Context, r *rand.Rand) { check(window.TryAcquire(ctx, r.IntN(5))).Level() },
			func(ctx context.Context, r *rand.Rand) { check(p.Acquire(ctx, fmt.Sprint(r.IntN(9)), r.IntN(20))) },
			func(ctx context.Context, r *rand.Rand) { check(chain.TryAcquire(ctx, r.IntN(5))) },
			func(ctx context.Context, r *rand.Rand) {
				if r.IntN(20) == 0 {
					_ = l.Reconfigure(bucketOf(20+r.IntN(50), 10, time.Millisecond, 30))
					_ = p.Reconfigure(bucketOf(20+r.IntN(50), 10, time.Millisecond, 30))
				}
				l.Statistics()
				_, _ = p.Statistics("1")
				l.Limits()
			},
		)
	}
	seats := must(s.PartitionedConcurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 5, QueueLimit: 10}, &store.LimiterOptions{LeaseTTL: 100 * time.Millisecond}))(t)
	hold := func(ctx context.Context, r *rand.Rand) {
		lease := check(seats.Acquire(ctx, fmt.Sprint(r.IntN(3)), 1+r.IntN(3)))
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
		lease.Release()
	}
	return append(all, hold, hold, hold, func(context.Context, *rand.Rand) { s.Counters(); s.Health() })
}

// Two instances never hold more permits than the limit, whatever calls are lost.
func TestLease_ConcurrentSafe(t *testing.T) {
	b := &hooked{Memory: storetest.NewMemory()}
	var troubles, held, most atomic.Int64
	b.hook(nil, func(string) error {
		if troubles.Add(1)%20 == 0 {
			return errDead // it was carried out
		}
		return nil
	})
	var wg sync.WaitGroup
	for range 2 {
		s := newStore(t, b, store.Options{FailureThreshold: 1000})
		l := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 5, QueueLimit: 100}, nil))(t)
		for range 8 {
			wg.Go(func() {
				for range 200 {
					lease, err := l.Acquire(t.Context(), 1)
					if err != nil {
						t.Error(err)
					}
					if !lease.Acquired() {
						continue
					}
					for n, m := held.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					held.Add(-1)
					lease.Release()
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(5))
}
