package limitertest

import (
	"sync"

	"github.com/weir-go/weir/limiter"
)

var leaseCases = []testCase{
	{name: "Release gives the permits back",
		rule: "Time", kinds: []Kind{Concurrency}, run: func(p *probe) {
			a, b := p.granted(1, "it is new"), p.granted(3, "3 are left")
			p.rejected(1, "all are held")
			p.release(a)
			p.rejected(2, "1 came back")
			p.release(b)
			p.granted(4, "all came back")
		}},
	{name: "Release serves the queue as far as it goes",
		rule: "Common 4", kinds: []Kind{Concurrency}, needs: Queue, run: func(p *probe) {
			ones := []limiter.Lease{p.granted(1, "it is new"), p.granted(1, "it is new"), p.granted(2, "it is new")}
			w := []*waiter{p.acquire(2), p.acquire(1)}
			p.release(ones[0])
			p.waits(w[0], "1 came back, and it needs 2")
			p.waits(w[1], "1 came back, but it is not its turn")
			p.release(ones[1])
			p.served(w[0], "2 came back")
			p.waits(w[1], "nothing is left")
			p.release(ones[2])
			p.served(w[1], "2 more came back")
		}},
	{name: "a lease is released once, even if many goroutines release copies of it",
		rule: "Common 13", kinds: []Kind{Concurrency}, run: func(p *probe) {
			held := p.granted(2, "it is new")
			lease := p.granted(1, "2 are left")
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
			p.rejected(3, "2 are held, however often the other lease was released")
			later := p.granted(2, "2 are there")
			p.release(lease)
			p.rejected(1, "an old lease gives back nothing of a new one")
			held.Release()
			p.release(later)
			p.granted(4, "all came back")
		}},
	{name: "Release gives nothing back where permits are spent",
		rule: "Common 13", kinds: timedKinds, run: func(p *probe) {
			lease := p.granted(4, "it is new")
			lease.Release()
			p.release(lease)
			p.rejected(1, "all were spent, and time alone brings them back")
		}},
	{name: "releasing a rejected lease does nothing",
		rule: "Common 13", run: func(p *probe) {
			p.granted(4, "it is new")
			p.rejected(1, "all were taken").Release()
			p.settle()
			p.rejected(1, "all are taken still")
		}},
}
