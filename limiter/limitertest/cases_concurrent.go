package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// crowdSize and rounds say how much goes on at once; with -race and two cores
// each case stays far below a second.
const (
	crowdSize = 8
	rounds    = 60
)

// together runs f in crowdSize goroutines, each with a random source of its own.
func together(f func(i int, r *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range crowdSize {
		wg.Go(func() { f(i, rand.New(rand.NewPCG(uint64(i), 42))) })
	}
	wg.Wait()
}

// held counts the permits that are held at once, and the most that were.
type held struct{ now, most atomic.Int64 }

func (h *held) take(n int) {
	now := h.now.Add(int64(n))
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
	}
}

// whole expects that no permit was lost or added: after a refill all are free, and no more.
func (p *probe) whole() {
	p.refill()
	p.granted(4, "all callers are done, and all permits came back: none was lost")
	p.rejected(1, "no permit was added")
}

var concurrentCases = []testCase{
	{
		name: "no more is held than the limit, however many ask at once (ConcurrentSafe)", rule: "Time", kinds: []Kind{Concurrency},
		run: func(p *probe) {
			p.with(p.usual())
			var h held
			var wrong atomic.Value
			together(func(_ int, r *rand.Rand) {
				for range rounds {
					n := 1 + r.IntN(4)
					ask := p.l.TryAcquire
					if r.IntN(2) == 0 {
						ask = p.l.Acquire
					}
					lease, err := ask(p.ctx, n)
					if err != nil {
						wrong.Store(err.Error())
						return
					}
					if !lease.Acquired() {
						time.Sleep(p.s.Unit / 1000)
						continue
					}
					h.take(n)
					if r.IntN(4) == 0 {
						time.Sleep(p.s.Unit / 1000)
					}
					h.now.Add(int64(-n))
					lease.Release()
				}
			})
			if got := wrong.Load(); got != nil {
				p.fail("no caller gets an error", got)
			}
			if most := h.most.Load(); most > 4 {
				p.fail("never more than 4 are held at once", most)
			}
			p.whole()
		},
	},
	{
		name: "a window grants its limit once, however many ask at once (ConcurrentSafe)", rule: "Time", kinds: timedKinds,
		run: func(p *probe) {
			l := p.usual()
			l.Permits, l.TokensPerPeriod = 100, 100
			p.with(l)
			for unit := range time.Duration(3) {
				var granted atomic.Int64
				together(func(_ int, r *rand.Rand) {
					for range rounds {
						lease, err := p.l.TryAcquire(p.ctx, 1+r.IntN(3))
						if err == nil {
							granted.Add(int64(lease.Permits()))
						}
					}
				})
				late := time.Since(p.start) > (unit+1)*p.s.Unit
				for n := granted.Load(); n < 100; n++ {
					p.grants(1)
					granted.Add(1)
				}
				if got := granted.Load(); got > 100 && !late {
					p.fail("a window grants 100", got)
				}
				if !late {
					p.rejected(1, "all 100 were taken")
				}
				p.until((unit + 1) * p.s.Unit)
			}
		},
	},
	{
		name: "many waiters that give up and time out lose no permits (ConcurrentSafe)", rule: "Common 5", needs: Queue,
		run: func(p *probe) {
			l := p.usual()
			l.QueueLimit = 1000
			p.with(l)
			var served, failed atomic.Int64
			var wrong atomic.Value
			together(func(_ int, r *rand.Rand) {
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
						wrong.Store(err.Error())
					}
					cancel()
				}
			})
			if got := wrong.Load(); got != nil {
				p.fail("only callers whose context ended get an error", got)
			}
			if p.s.Lacks&Statistics == 0 {
				s := p.statistics()
				if s.QueuedPermits != 0 || s.SuccessfulLeases != served.Load() || s.FailedLeases != failed.Load() {
					p.fail(fmt.Sprintf("no caller waits, %d were served and %d rejected", served.Load(), failed.Load()), fmt.Sprintf("%+v", s))
				}
			}
			p.refill()
			p.whole()
		},
	},
	{
		name: "Close finds every waiter, however many come meanwhile (ConcurrentSafe)", rule: "Common 6", needs: Queue | Close,
		run: func(p *probe) {
			l := p.usual()
			l.QueueLimit = 1000
			p.with(l)
			p.granted(4, "it is new")
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
			if w := (&waiter{n: 1, done: done}); !w.isDone(p.patience()) {
				p.fail("no caller waits at a closed limiter", "one does")
			}
			if got := granted.Load(); got != 0 {
				p.fail("Close grants nothing to waiters", got)
			}
		},
	},
}
