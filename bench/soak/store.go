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
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

const storeSlots = 10

// shared runs two instances on the backend in memory, which fails, stalls, forgets, and whose clock is stepped. The drills of
// store do so with Redis and PostgreSQL.
func shared(ctx context.Context, s *soak) error {
	m := storetest.NewMemory()
	bucket, blocks := s.rateCheck("store: bucket", 50, 500), s.rateCheck("store: blocks", 50, 500)
	slots := s.heldCheck("store: slots", storeSlots)
	lost := func(step time.Duration) { // what the store grants again
		bucket.forgive(step)
		blocks.forgive(step)
		slots.forgive()
	}
	events := s.count("store: events")
	var wg sync.WaitGroup
	var stores []*store.Store
	var held *store.Limiter // of the last instance
	for range 2 {
		instance, err := store.New(m, &store.Options{
			CallTimeout: 200 * time.Millisecond, ProbeInterval: 100 * time.Millisecond, RefreshInterval: time.Second,
			OnEvent: func(e store.Event) {
				events.Add(1)
				if e.Kind == store.EventLeaseLost {
					slots.forgive()
				}
				misbehave(50)
			},
		})
		if err != nil {
			return err
		}
		stores = append(stores, instance)
		tokens := limiter.TokenBucketOptions{TokenLimit: 50, TokensPerPeriod: 1, ReplenishmentPeriod: 2 * time.Millisecond, QueueLimit: 20}
		plain := weir.Must(instance.TokenBucket("soak/bucket", tokens, nil))
		inBlocks := weir.Must(instance.TokenBucket("soak/blocks", tokens, &store.LimiterOptions{Block: 5, CacheRejections: true}))
		held = weir.Must(instance.Concurrency("soak/slots", limiter.ConcurrencyOptions{PermitLimit: storeSlots, QueueLimit: 20},
			&store.LimiterOptions{LeaseTTL: 5 * time.Second}))
		perKey := weir.Must(instance.PartitionedFixedWindow("soak/keys", limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Second},
			&store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.5, CacheRejections: true}))
		for range 3 {
			wg.Go(func() { takePermits(ctx, plain, bucket) })
			wg.Go(func() { takePermits(ctx, inBlocks, blocks) })
			wg.Go(func() { holdLeases(ctx, held, slots) })
		}
		wg.Go(func() {
			for pause(ctx, 2*time.Millisecond) {
				_, _ = perKey.TryAcquire(ctx, fmt.Sprint("key ", rand.IntN(2000)), 1)
			}
		})
		wg.Go(func() { // changes the limit, within what is checked
			for pause(ctx, 5*time.Second) {
				tokens.TokenLimit = 10 + rand.IntN(41)
				_ = plain.Reconfigure(tokens)
			}
		})
	}
	for pause(ctx, 4*time.Second) {
		switch rand.IntN(6) {
		case 0:
			m.Fail(errHook)
		case 1:
			m.Stall(true)
		case 2:
			m.LoseAnswers(true)
		case 3:
			m.Delay(time.Duration(rand.IntN(300)) * time.Millisecond)
		case 4:
			step := time.Duration(rand.IntN(4000)-2000) * time.Millisecond
			lost(step)
			m.Step(step)
			lost(step)
		case 5:
			lost(0)
			m.Forget()
			lost(0)
		}
		pause(ctx, time.Second)
		m.Fail(nil)
		m.Stall(false)
		m.LoseAnswers(false)
		m.Delay(0)
	}
	wg.Wait()
	return errors.Join(allBack(held), stores[0].Close(), stores[1].Close())
}

// allBack waits until interrupted leases have expired and all slots are free.
func allBack(slots *store.Limiter) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		st := slots.StatisticsContext(ctx)
		if st.AvailablePermits == storeSlots && st.QueuedPermits == 0 {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%+v once nothing runs, the limit is %d", st, storeSlots)
		}
	}
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
