package limitertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// programs are the cases that a script cannot say.
var programs = []testCase{
	{name: "a waiter whose deadline passes leaves then", rule: "Common 5", needs: Queue, script: "take 4", run: func(p *probe) {
		past, cancel := context.WithTimeout(context.Background(), -time.Second)
		defer cancel()
		lease, err := p.l.Acquire(past, 1)
		p.missesDeadline(lease.Acquired(), err)
		deadline := p.start.Add(p.s.Unit / 2)
		ctx, cancel := context.WithDeadlineCause(p.ctx, deadline, errCause)
		defer cancel()
		w := p.acquireWith(ctx, 1)
		p.untilJustBefore(p.s.Unit / 2)
		p.waits(w)
		p.until(p.s.Unit / 2)
		p.returns(w)
		if p.missesDeadline(w.lease.Acquired(), w.err); !errors.Is(w.err, errCause) {
			p.fail("the error has the context's cause", w.err)
		}
		if late := w.ended.Sub(deadline); late != 0 {
			p.note("it leaves at its deadline", late.String()+" late")
		}
	}},
	{name: "a cancel and a grant at the same time are counted by the outcome", rule: "Common 8", needs: Queue | Statistics,
		run: func(p *probe) {
			successes := int64(0)
			for range 50 {
				p.granted(4)
				successes++
				w := p.acquire(3)
				units := time.Since(p.start)/p.s.Unit + 1
				meet := p.start.Add(units * p.s.Unit)
				stop := time.AfterFunc(time.Until(meet), func() { w.cancel(errCause) })
				if p.s.Kind == Concurrency {
					time.Sleep(time.Until(meet))
					p.refill()
				} else {
					p.until(units * p.s.Unit)
				}
				stop.Stop()
				p.returns(w)
				available := 4
				if w.err == nil {
					p.served(w)
					successes++
					available = 1
				} else if !errors.Is(w.err, errCause) || w.lease.Acquired() {
					p.fail("it is served, or has the context's error", describe(w.lease, w.err))
				}
				p.do(fmt.Sprintf("stats %d 0 %d 0; refill", available, successes))
			}
		}},
	{name: "a concurrency limiter is idle since the Release that made it full, or since it was asked after that", rule: "Common 9",
		kinds: []Kind{Concurrency}, needs: Idle, script: "take a 1; take b 2; at 1; free a; busy; at 2; mark; free b; at 3", run: func(p *probe) {
			first, ok := p.idle()
			since := time.Since(p.start) - first
			if !ok || since < p.mark {
				p.fail("the limiter is idle since the Release at most", fmt.Sprintf("idle for %v, %v", first, ok))
			}
			p.mark = since
			p.do("at 5; idle +0")
		}},
	{name: "a lease is released once, even if many goroutines release copies of it", rule: "Common 13", kinds: []Kind{Concurrency},
		script: "take held 2; take lease 1", run: func(p *probe) {
			lease := p.named["lease"]
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					again := lease
					again.Release()
					again.Release()
				})
			}
			wg.Wait()
			p.settle()
			p.do("deny 3; take later 2; free lease; deny 1; free held; free later; take 4")
		}},
	{name: "the grid does not drift when it is asked late", rule: "Time", kinds: timedKinds, run: func(p *probe) {
		step := p.limits.Step(p.s.Kind)
		for _, tenths := range []time.Duration{13, 36, 66} {
			late := p.s.Unit * tenths / 10
			p.until(late)
			p.granted(4)
			back := late/step*step + p.s.Unit
			p.untilJustBefore(back)
			p.rejected(1)
			p.until(back)
			p.granted(4)
		}
	}},
	{name: "changing the limits again and again grants no more than the largest", rule: "Reconfigure", needs: reconfigurable,
		run: func(p *probe) {
			taken := 0
			for i := 0; i < 60 && time.Since(p.start) < p.s.Unit/2; i++ {
				p.do(fmt.Sprintf("set Permits=%d", []int{4, 2, 6, 1}[i%4]))
				for n := p.limits.Permits; n > 0; n-- {
					if _, ok := p.grants(n); ok {
						taken += n
					}
				}
			}
			if taken != 6 {
				p.fail("as much is granted as the largest limit, 6", taken)
			}
		}},
}

func (p *probe) missesDeadline(acquired bool, err error) {
	if acquired || !errors.Is(err, context.DeadlineExceeded) {
		p.fail("the error is that of the deadline", err)
	}
}
