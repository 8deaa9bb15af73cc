package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/store/weirpostgres"
	"github.com/weir-go/weir/store/weirredis"
	"github.com/weir-go/weir/tools/testserver"
)

// A backend is a kind of store to run.
type backend struct {
	name   string
	open   func(o store.Options) (*store.Store, error) // an instance
	faults func(ctx context.Context, lost func(step time.Duration))
	repair func() // after the faults
}

const storeSlots = 10

// storeChecks are the checks of what the instances on one backend grant.
type storeChecks struct {
	bucket, blocks *rateCheck
	slots          *heldCheck
	byKey          *atomic.Int64
}

// lost allows what a store grants again after it has lost its state, or its clock has stepped.
func (c *storeChecks) lost(step time.Duration) {
	c.bucket.forgive(step)
	c.blocks.forgive(step)
	c.slots.forgive()
}

// shared runs two instances on one backend.
func shared(ctx context.Context, s *soak, b backend) error {
	checks := storeChecks{
		bucket: s.rateCheck(b.name+": bucket", 50, 500),
		blocks: s.rateCheck(b.name+": blocks", 50, 500),
		slots:  s.heldCheck(b.name+": slots", storeSlots),
		byKey:  s.count(b.name + ": permits by key"),
	}
	events := s.count(b.name + ": events")
	options := store.Options{
		CallTimeout: 200 * time.Millisecond, ProbeInterval: 100 * time.Millisecond, RefreshInterval: time.Second,
		OnEvent: func(e store.Event) {
			events.Add(1)
			if e.Kind == store.EventLeaseLost {
				checks.slots.forgive()
			}
			misbehave(50)
		},
	}
	var wg sync.WaitGroup
	var stores []*store.Store
	var slots *store.Limiter // of the last instance
	for range 2 {
		instance, err := b.open(options)
		if err != nil {
			return err
		}
		stores = append(stores, instance)
		slots = useStore(ctx, &wg, instance, &checks)
	}
	b.faults(ctx, checks.lost)
	wg.Wait()

	b.repair()
	if err := allBack(slots); err != nil {
		s.violation("%s: %v", b.name, err)
	}
	for _, instance := range stores {
		if err := instance.Close(); err != nil && !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return nil
}

// useStore makes the limiters of an instance and starts goroutines that use them. It returns the limiter of the slots.
func useStore(ctx context.Context, wg *sync.WaitGroup, instance *store.Store, checks *storeChecks) *store.Limiter {
	tokens := limiter.TokenBucketOptions{TokenLimit: 50, TokensPerPeriod: 1, ReplenishmentPeriod: 2 * time.Millisecond, QueueLimit: 20}
	plain := weir.Must(instance.TokenBucket("soak/bucket", tokens, nil))
	blocks := weir.Must(instance.TokenBucket("soak/blocks", tokens, &store.LimiterOptions{Block: 5, CacheRejections: true}))
	slots := weir.Must(instance.Concurrency("soak/slots", limiter.ConcurrencyOptions{PermitLimit: storeSlots, QueueLimit: 20},
		&store.LimiterOptions{LeaseTTL: 5 * time.Second}))
	perKey := weir.Must(instance.PartitionedFixedWindow("soak/keys", limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Second},
		&store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.5, CacheRejections: true}))
	for range 3 {
		wg.Go(func() { takePermits(ctx, pausing{plain}, checks.bucket) })
		wg.Go(func() { takePermits(ctx, pausing{blocks}, checks.blocks) })
		wg.Go(func() { holdLeases(ctx, pausing{slots}, checks.slots) })
	}
	wg.Go(func() {
		for pause(ctx, 2*time.Millisecond) {
			lease, err := perKey.TryAcquire(ctx, fmt.Sprint("key ", rand.IntN(2000)), 1)
			if err == nil && lease.Acquired() {
				checks.byKey.Add(1)
			}
		}
	})
	wg.Go(func() { // changes the limit, within what is checked
		for pause(ctx, 5*time.Second) {
			tokens.TokenLimit = 10 + rand.IntN(41)
			_ = plain.Reconfigure(tokens)
		}
	})
	return slots
}

// pausing pauses after a rejection, so that an instance without a store does not use up a processor.
type pausing struct{ limiter.Limiter }

func (p pausing) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := p.Limiter.TryAcquire(ctx, n)
	if err != nil || !lease.Acquired() {
		pause(ctx, 5*time.Millisecond)
	}
	return lease, err
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

// inMemory runs the memory backend, whose clock can be stepped, and which fails and stalls on demand.
func inMemory(ctx context.Context, s *soak) error {
	m := storetest.NewMemory()
	faults := s.count("memory: faults")
	repair := func() {
		m.Fail(nil)
		m.Stall(false)
		m.LoseAnswers(false)
		m.Delay(0)
	}
	return shared(ctx, s, backend{
		name: "memory",
		open: func(o store.Options) (*store.Store, error) { return store.New(m, &o) },
		faults: func(ctx context.Context, lost func(time.Duration)) {
			for pause(ctx, 4*time.Second) {
				faults.Add(1)
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
				repair()
			}
		},
		repair: repair,
	})
}

// onServer runs a backend on a server that is paused and killed. keeps says that a killed server keeps its data.
func onServer(
	ctx context.Context, s *soak, name string, start func(context.Context) (*testserver.Server, error), keeps bool,
	connect func(url string) (open func(store.Options) (*store.Store, error), disconnect func(), err error),
) error {
	server, err := start(ctx)
	if errors.Is(err, testserver.ErrNotFound) {
		s.print("%s: left out: %v", name, err)
		return nil
	}
	if err != nil {
		return err
	}
	defer server.Stop()
	open, disconnect, err := connect(server.URL)
	if err != nil {
		return err
	}
	defer disconnect()
	faults := s.count(name + ": faults")
	return shared(ctx, s, backend{name: name, open: open, repair: func() {}, faults: func(ctx context.Context, lost func(time.Duration)) {
		if !server.Own() {
			s.print("%s: the environment named the server, so it is left alone", name)
			<-ctx.Done()
			return
		}
		for pause(ctx, 20*time.Second) {
			faults.Add(1)
			if rand.IntN(2) == 0 {
				server.Pause()
				pause(ctx, 2*time.Second)
				server.Resume()
				continue
			}
			if !keeps {
				lost(0)
			}
			server.Kill()
			pause(ctx, 3*time.Second)
			if err := server.Restart(false); err != nil {
				s.violation("%s: %v", name, err)
			}
			if !keeps {
				lost(0)
			}
		}
	}})
}

func inRedis(ctx context.Context, s *soak) error {
	return onServer(ctx, s, "redis", testserver.StartRedis, false, func(url string) (func(store.Options) (*store.Store, error), func(), error) {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, nil, err
		}
		o.ContextTimeoutEnabled = true
		client := redis.NewClient(o)
		return func(o store.Options) (*store.Store, error) {
			return weirredis.New(client, &weirredis.Options{Options: o})
		}, func() { _ = client.Close() }, nil
	})
}

func inPostgres(ctx context.Context, s *soak) error {
	return onServer(ctx, s, "postgres", testserver.StartPostgres, true, func(url string) (func(store.Options) (*store.Store, error), func(), error) {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		if err := weirpostgres.Migrate(ctx, pool, ""); err != nil {
			return nil, nil, err
		}
		return func(o store.Options) (*store.Store, error) {
			return weirpostgres.New(pool, &weirpostgres.Options{Options: o})
		}, pool.Close, nil
	})
}
