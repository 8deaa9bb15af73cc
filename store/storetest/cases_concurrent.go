package storetest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

const contenders = 8

// contend runs f contenders times at once, on two instances in turn, and fails with the first error.
func (p *probe) contend(f func(i int, b backend.Backend) error) {
	instances := []backend.Backend{p.b, p.another()}
	errs := make([]error, contenders)
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() { errs[i] = f(i, instances[i%2]) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			p.fail("no concurrent call gets an error", err)
		}
	}
}

var concurrentCases = []testCase{
	{name: "no permit of a key is granted twice (ConcurrentSafe)", run: func(p *probe) {
		for d, key := range p.timed(200) {
			var total atomic.Int64
			p.contend(func(_ int, b backend.Backend) error {
				for range 40 {
					batch := batchOf(d, key, take(1), upTo(2))
					if err := backend.Windowed(b).Decide(p.ctx, []*backend.Batch{batch}); err != nil {
						return err
					}
					for _, n := range batch.Granted {
						total.Add(max(n, 0))
					}
				}
				return nil
			})
			p.check(total.Load() == 200, "all 200 are granted, and no more", total.Load())
		}
	}},
	{name: "calls about overlapping sets of keys do not disturb each other (ConcurrentSafe)", run: func(p *probe) {
		const keys = 12
		for d := range p.timed(30) {
			var totals [keys]atomic.Int64
			p.contend(func(i int, b backend.Backend) error {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 25 {
					var batches []*backend.Batch
					for k := range keys {
						if random.IntN(2) == 0 {
							batches = append(batches, batchOf(d, fmt.Sprintf("%02d", k), take(1)))
						}
					}
					sortBatches(batches)
					if err := backend.Windowed(b).Decide(p.ctx, batches); err != nil {
						return err
					}
					for _, batch := range batches {
						k, _ := strconv.Atoi(batch.Key)
						totals[k].Add(max(batch.Granted[0], 0))
					}
				}
				return nil
			})
			for k := range totals {
				p.check(totals[k].Load() == 30, fmt.Sprintf("all 30 of key %d are granted, and no more", k), totals[k].Load())
			}
		}
	}},
	{name: "only one of the concurrent calls that replace a state succeeds (ConcurrentSafe)", run: func(p *probe) {
		for d, key := range p.timed(100) {
			var done atomic.Int64
			p.takes(d, key, 1, 1, "it is full")
			next := newer(d, nil)
			p.contend(func(_ int, b backend.Backend) error {
				batch := batchOf(next, key, take(1))
				if err := backend.Windowed(b).Decide(p.ctx, []*backend.Batch{batch}); err != nil {
					return err
				}
				if batch.Outcome == backend.OutdatedState {
					ok, err := replaceOne(p.ctx, b, next, key, *batch.Stored, next.Convert(*batch.Stored))
					if err != nil {
						return err
					}
					if ok {
						done.Add(1)
					}
				}
				return backend.Windowed(b).Decide(p.ctx, []*backend.Batch{{Definition: next, Key: key, Requests: []backend.Request{charge(1)}}})
			})
			p.check(done.Load() == 1, "one of them has replaced the state", done.Load())
			b := batchOf(next, key, take(0))
			p.works("Decide", backend.Windowed(p.b).Decide(p.ctx, []*backend.Batch{b}))
			p.check(b.State.Missing >= 1+contenders, fmt.Sprintf("%d are missing", 1+contenders), describe(b))
		}
	}},
	{name: "concurrent calls never lease more than the limit (ConcurrentSafe)", run: func(p *probe) {
		d := p.define(concurrency(3))
		var held, most atomic.Int64
		p.contend(func(i int, b backend.Backend) error {
			for round := range 15 {
				r := leaseRequest(d, "", fmt.Sprint(i, "-", round), 1+int64(round%2), time.Minute)
				if err := b.Acquire(p.ctx, []*backend.LeaseRequest{r}); err != nil {
					return err
				}
				if !r.OK {
					continue
				}
				now := held.Add(r.Permits)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				held.Add(-r.Permits)
				if err := b.Release(p.ctx, []*backend.LeaseRequest{sameLease(r)}); err != nil {
					return err
				}
			}
			return nil
		})
		p.check(most.Load() <= 3, "at most 3 are held", most.Load())
		p.granted(leaseRequest(d, "", "last", 3, time.Minute), 3, "all were released")
	}},
	{name: "no concurrent call is rejected while a permit is free (ConcurrentSafe)", run: func(p *probe) {
		d := p.define(concurrency(contenders))
		p.contend(func(i int, b backend.Backend) error {
			for round := range fewer(60) {
				r := leaseRequest(d, "", fmt.Sprint(i, "-", round), 1, time.Minute)
				if err := b.Acquire(p.ctx, []*backend.LeaseRequest{r}); err != nil {
					return err
				}
				if !r.OK {
					return fmt.Errorf("it is rejected with %d in use", r.InUse)
				}
				if err := b.Release(p.ctx, []*backend.LeaseRequest{r}); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{name: "a lease that concurrent calls acquire is one lease (ConcurrentSafe)", run: func(p *probe) {
		d := p.define(concurrency(10))
		var keys [40][contenders]*backend.LeaseRequest
		p.contend(func(i int, b backend.Backend) error {
			for key := range keys {
				keys[key][i] = leaseRequest(d, fmt.Sprint(key), "same", 3, time.Minute)
				if err := b.Acquire(p.ctx, keys[key][i:i+1]); err != nil {
					return err
				}
			}
			return nil
		})
		for _, all := range keys {
			for _, r := range all {
				p.check(r.OK && r.InUse == 3 && r.Fence == all[0].Fence, "each call gets the same 3 permits", fmt.Sprintf("%+v", *r))
			}
		}
	}},
	{name: "leases of overlapping sets of keys do not disturb each other (ConcurrentSafe)", run: func(p *probe) {
		d := p.define(concurrency(5))
		var granted [10]atomic.Int64
		p.contend(func(i int, b backend.Backend) error {
			var requests []*backend.LeaseRequest
			for k := range 10 {
				for j := range 2 {
					requests = append(requests, leaseRequest(d, fmt.Sprint(k), fmt.Sprint(i, "-", j), 1, time.Minute))
				}
			}
			if err := b.Acquire(p.ctx, requests); err != nil {
				return err
			}
			for j, r := range requests {
				if r.OK {
					granted[j/2].Add(1)
				}
			}
			return b.Renew(p.ctx, requests)
		})
		for k := range granted {
			p.check(granted[k].Load() == 5, "5 of each key are granted", granted[k].Load())
		}
	}},
}
