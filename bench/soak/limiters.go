package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// limiters runs the limiters of one process under contention while their limits change and waiters leave.
func limiters(ctx context.Context, s *soak) error {
	bucket := weir.Must(limiter.NewTokenBucket(bucketOf(50)))
	fixed := weir.Must(limiter.NewFixedWindow(fixedOf(50)))
	sliding := weir.Must(limiter.NewSlidingWindow(slidingOf(50)))
	slots := weir.Must(limiter.NewConcurrency(slotsOf(20)))
	chain := weir.Must(limiter.Chain(bucket, slots))
	// A fixed window may grant twice its limit around its border. Changed limits never grant more than the largest.
	rates := map[limiter.Limiter]*rateCheck{
		bucket:  s.rateCheck("bucket", 100, 1000),
		fixed:   s.rateCheck("fixed window", 200, 1000),
		sliding: s.rateCheck("sliding window", 100, 1112), // a segment leaves after 90 ms at the earliest
	}
	held := s.heldCheck("slots", 40)

	var wg sync.WaitGroup
	for l, r := range rates {
		for range 4 {
			wg.Go(func() { takePermits(ctx, l, r) })
		}
	}
	for range 8 {
		wg.Go(func() { holdLeases(ctx, slots, held) })
	}
	for range 4 {
		wg.Go(func() {
			for pause(ctx, time.Millisecond) {
				begun := time.Now()
				if lease, err := impatient(ctx, chain, 1+rand.IntN(3)); err == nil && lease.Acquired() {
					rates[bucket].add(begun, lease.Permits())
					held.take(lease.Permits())
					pause(ctx, time.Millisecond)
					held.release(lease.Permits())
					lease.Release()
				}
			}
		})
	}
	wg.Go(func() {
		for pause(ctx, 200*time.Millisecond) {
			n := 10 + rand.IntN(91)
			_ = bucket.Reconfigure(bucketOf(n))
			_ = fixed.Reconfigure(fixedOf(n))
			_ = sliding.Reconfigure(slidingOf(n))
			_ = slots.Reconfigure(slotsOf(1 + n*39/100))
		}
	})
	wg.Wait()

	limits := slots.Limits()
	if st := slots.Statistics(); st.AvailablePermits != int64(limits.Permits) || st.QueuedPermits != 0 {
		s.violation("slots: %+v once nothing runs, the limit is %d", st, limits.Permits)
	}
	for l := range rates {
		if st := l.(limiter.StatisticsProvider).Statistics(); st.QueuedPermits != 0 {
			s.violation("%T: %+v once nothing runs", l, st)
		}
	}
	return errors.Join(chain.Close(), bucket.Close(), fixed.Close(), sliding.Close(), slots.Close())
}

// bucketOf returns a bucket of n tokens with 1000 new ones a second.
func bucketOf(n int) limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{TokenLimit: n, TokensPerPeriod: 1, ReplenishmentPeriod: time.Millisecond, QueueLimit: 100}
}

func fixedOf(n int) limiter.FixedWindowOptions {
	return limiter.FixedWindowOptions{PermitLimit: n, Window: 100 * time.Millisecond, QueueLimit: 100}
}

func slidingOf(n int) limiter.SlidingWindowOptions {
	return limiter.SlidingWindowOptions{PermitLimit: n, Window: 100 * time.Millisecond, SegmentsPerWindow: 10, QueueLimit: 100}
}

func slotsOf(n int) limiter.ConcurrencyOptions {
	return limiter.ConcurrencyOptions{PermitLimit: n, QueueLimit: 50, QueueOrder: limiter.QueueOrder(rand.IntN(2))}
}

// impatient calls TryAcquire, or Acquire for a few milliseconds.
func impatient(ctx context.Context, l limiter.Limiter, n int) (limiter.Lease, error) {
	if rand.IntN(2) == 0 {
		return l.TryAcquire(ctx, n)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
	defer cancel()
	return l.Acquire(ctx, n)
}

func takePermits(ctx context.Context, l limiter.Limiter, r *rateCheck) {
	for ctx.Err() == nil {
		begun := time.Now()
		lease, err := impatient(ctx, l, rand.IntN(4))
		switch {
		case err == nil && lease.Acquired():
			r.add(begun, lease.Permits())
		default: // a store that is away must not use up a processor
			pause(ctx, 3*time.Millisecond)
		}
	}
}

func holdLeases(ctx context.Context, l limiter.Limiter, held *heldCheck) {
	for ctx.Err() == nil {
		lease, err := impatient(ctx, l, rand.IntN(4))
		if err != nil || !lease.Acquired() {
			pause(ctx, time.Millisecond)
			continue
		}
		held.take(lease.Permits())
		pause(ctx, time.Millisecond)
		held.release(lease.Permits())
		lease.Release()
		lease.Release() // does nothing
	}
}

const mostKeys = 1000

// keys floods a keyed limiter with keys while the functions it calls misbehave.
func keys(ctx context.Context, s *soak) error {
	regular := s.rateCheck("one key of many", 20, 100)
	var mu sync.Mutex
	var made []*limiter.Concurrency // the newest limiters of the factory; the keyed limiter has forgotten some
	p, err := limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		misbehave(2000)
		return limiter.Partition[string]{Key: key, New: func(key string) (limiter.Limiter, error) {
			if key == "regular" {
				return limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 20, TokensPerPeriod: 1, ReplenishmentPeriod: 10 * time.Millisecond})
			}
			misbehave(200)
			if rand.IntN(100) == 0 {
				return nil, errHook
			}
			l, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 2, QueueLimit: 2})
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			if made = append(made, l); len(made) > 2*mostKeys {
				made = made[mostKeys:]
			}
			return misbehavingLimiter{l}, nil
		}}
	}, &limiter.PartitionedOptions{MaxPartitions: mostKeys, IdleTimeout: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	granted := s.count("permits of made-up keys")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				safely(func() {
					lease, err := p.TryAcquire(ctx, fmt.Sprint("key ", rand.IntN(4*mostKeys)), 1)
					if err == nil && lease.Acquired() {
						granted.Add(1)
						defer lease.Release()
						misbehave(1000)
					}
				})
				pause(ctx, 200*time.Microsecond)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			safely(func() {
				begun := time.Now()
				if lease, err := p.TryAcquire(ctx, "regular", 1); err == nil && lease.Acquired() {
					regular.add(begun, 1)
				}
			})
			pause(ctx, time.Millisecond)
		}
	})
	for pause(ctx, time.Second) {
		if n := p.Len(); n > mostKeys {
			s.violation("keys: there are %d partitions, the bound is %d", n, mostKeys)
		}
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	for _, l := range made {
		if st := l.Statistics(); st.AvailablePermits != 2 || st.QueuedPermits != 0 {
			s.violation("keys: a key has %+v once nothing runs, its limit is 2", st)
		}
	}
	_ = p.Close() // the panics of the limiters' Close methods are its error
	return nil
}

// A misbehavingLimiter is a custom limiter whose optional methods misbehave.
type misbehavingLimiter struct{ *limiter.Concurrency }

func (w misbehavingLimiter) IdleDuration() (time.Duration, bool) {
	misbehave(500)
	return w.Concurrency.IdleDuration()
}

func (w misbehavingLimiter) Close() error {
	misbehave(50)
	return w.Concurrency.Close()
}
