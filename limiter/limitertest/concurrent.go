package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
)

// crowdSize and rounds say how much goes on at once. With -race and two cores, each case takes far less than a second.
const (
	crowdSize = 8
	rounds    = 60
)

// together calls f in crowdSize goroutines, each with a random source of its own. It expects that no call returns an
// error.
func (p *probe) together(f func(r *rand.Rand) error) {
	errs := make([]error, crowdSize)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(rand.New(rand.NewPCG(uint64(i), 42))) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		p.fail("many callers at once get the answers that one gets", err)
	}
}

// lostNothing expects that no permit was lost or added: after a refill all are free, and no more.
func (p *probe) lostNothing() {
	p.refill()
	p.granted(4)
	p.rejected(1)
}

var concurrentCases = []testCase{
	{name: "no more is held than the limit, however many ask at once (ConcurrentSafe)",
		rule: "Time", kinds: []Kind{Concurrency}, run: func(p *probe) {
			var held atomic.Int64
			p.together(func(r *rand.Rand) error {
				for range rounds {
					n := 1 + r.IntN(4)
					ask := p.l.TryAcquire
					if r.IntN(2) == 0 {
						ask = p.l.Acquire
					}
					lease, err := ask(p.ctx, n)
					if err != nil {
						return err
					}
					if !lease.Acquired() {
						time.Sleep(p.s.Unit / 1000)
						continue
					}
					now := held.Add(int64(n))
					if r.IntN(4) == 0 {
						time.Sleep(p.s.Unit / 1000)
					}
					held.Add(int64(-n))
					lease.Release()
					if now > 4 {
						return fmt.Errorf("%d permits were held at once, and the limit is 4", now)
					}
				}
				return nil
			})
			p.lostNothing()
		}},
	{name: "a window grants its limit once, however many ask at once (ConcurrentSafe)",
		rule: "Time", kinds: timedKinds, limits: permits(100, 100), run: func(p *probe) {
			for unit := range time.Duration(3) {
				var granted atomic.Int64
				p.together(func(r *rand.Rand) error {
					for range rounds {
						lease, err := p.l.TryAcquire(p.ctx, 1+r.IntN(3))
						if err != nil {
							return err
						}
						granted.Add(int64(lease.Permits()))
					}
					return nil
				})
				for n := granted.Load(); n < 100; n++ {
					p.grants(1)
					granted.Add(1)
				}
				if got := granted.Load(); got > 100 {
					p.fail("a window grants 100", got)
				}
				p.rejected(1)
				p.until((unit + 1) * p.s.Unit)
			}
		}},
	{name: "many waiters that give up and time out lose no permits (ConcurrentSafe)",
		rule: "Common 5", needs: Queue, limits: withQueue(1000), run: func(p *probe) {
			var served, failed atomic.Int64
			p.together(func(r *rand.Rand) error {
				for range rounds / 4 {
					ctx, cancel := context.WithTimeout(p.ctx, p.s.Unit/20*time.Duration(r.IntN(30)))
					lease, err := p.l.Acquire(ctx, 1+r.IntN(4))
					switch {
					case err == nil && lease.Acquired():
						served.Add(1)
						if r.IntN(2) == 0 {
							time.Sleep(p.s.Unit / 50)
						}
						lease.Release()
					case err == nil:
						failed.Add(1)
					case ctx.Err() == nil:
						cancel()
						return err
					}
					cancel()
				}
				return nil
			})
			p.refill()
			p.lostNothing()
			p.do(fmt.Sprintf("stats 0 0 %d %d", served.Load()+1, failed.Load()+1))
		}},
	{name: "Close finds every waiter, however many come meanwhile (ConcurrentSafe)",
		rule: "Common 6", needs: Queue | Close, limits: withQueue(1000), run: func(p *probe) {
			p.granted(4)
			var granted atomic.Int64
			var wg sync.WaitGroup
			for range crowdSize {
				wg.Go(func() {
					for range rounds {
						lease, err := p.l.Acquire(p.ctx, 1)
						if err != nil {
							return
						}
						granted.Add(int64(lease.Permits()))
					}
				})
			}
			p.close()
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			p.settle()
			p.returns(&waiter{n: 1, done: done})
			if got := granted.Load(); got != 0 {
				p.fail("Close grants nothing to waiters", got)
			}
		}},
	{name: "charges of many callers are all counted (ConcurrentSafe)",
		rule: "Charge 1", kinds: timedKinds, needs: Charge, limits: permits(1000, 1000), run: func(p *probe) {
			charger := p.charger()
			p.together(func(*rand.Rand) error {
				for range 10 {
					for _, n := range []int{3, -2} {
						if _, err := charger.Charge(p.ctx, n); err != nil {
							return err
						}
					}
				}
				return nil
			})
			p.charge(0, 1000-10*crowdSize)
		}},
	{name: "a limiter can be peeked at while others take (ConcurrentSafe)",
		rule: "Common 14", needs: Peek, run: func(p *probe) {
			peeker := optional[limiter.Peeker](p, "Peek")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 100 {
					_, _ = peeker.Peek(p.ctx, 1)
				}
			}()
			p.do("take 1; take 1; take 1; take 1")
			<-done
			p.rejected(1)
		}},
}
