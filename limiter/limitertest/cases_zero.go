package limitertest

import "github.com/weir-go/weir/limiter"

// A zero is a request for 0 permits.
var zeroCases = []testCase{
	{name: "zero permits are granted while one is left, and take nothing",
		rule: "Common 2", needs: ZeroPermits, run: func(p *probe) {
			p.granted(3, "it is new")
			for range 10 {
				p.granted(0, "one is left").Release()
				p.served(p.acquire(0), "one is left")
			}
			p.granted(1, "zeros take nothing")
			p.rejected(1, "all were taken")
		}},
	{name: "zero permits are rejected when nothing is left",
		rule: "Common 2", needs: ZeroPermits, run: func(p *probe) {
			p.granted(4, "it is new")
			lease := p.rejected(0, "nothing is left")
			if lease.Permits() != 0 || lease.Reason() != "" {
				p.fail("a plain rejection holds nothing and has no reason", describe(lease, nil))
			}
		}},
	{name: "a zero waits until one permit is there",
		rule: "Common 2", needs: ZeroPermits | Queue, run: func(p *probe) {
			p.granted(4, "it is new")
			w := p.acquire(0)
			p.waits(w, "nothing is left")
			p.refill()
			p.served(w, "permits came back")
			p.granted(4, "the zero took nothing")
		}},
	{name: "a waiting zero counts as one permit against the queue limit",
		rule: "Common 2", needs: ZeroPermits | Queue, limits: withQueue(3), run: func(p *probe) {
			p.granted(4, "it is new")
			w := []*waiter{p.acquire(2), p.acquire(0)}
			p.rejectedWith(p.acquire(0), limiter.ReasonQueueLimit, "2 and a zero fill a queue of 3")
			p.rejectedWith(p.acquire(1), limiter.ReasonQueueLimit, "2 and a zero fill a queue of 3")
			p.refill()
			p.served(w[0], "permits came back")
			p.served(w[1], "permits came back")
		}},
	{name: "a zero finds no room where there is no queue",
		rule: "Common 2", needs: ZeroPermits, limits: withQueue(0), run: func(p *probe) {
			p.granted(4, "it is new")
			w := p.acquire(0)
			p.rejectedWith(w, limiter.ReasonNoPermit, "it counts as one, and the queue limit is 0")
		}},
	{name: "a zero is granted past a queue",
		rule: "Common 2", needs: ZeroPermits | Queue, run: func(p *probe) {
			p.granted(3, "it is new")
			big := p.acquire(2)
			p.waits(big, "one is left")
			p.granted(0, "a zero overtakes no waiter, and one is left")
			p.served(p.acquire(0), "a zero overtakes no waiter, and one is left")
			p.waits(big, "the zeros changed nothing")
		}},
	{name: "waiting zeros are granted wherever they stand once one permit is there",
		rule: "Common 2", needs: ZeroPermits | Queue, run: func(p *probe) {
			first := p.granted(1, "it is new")
			p.granted(3, "it is new")
			big, zero := p.acquire(4), p.acquire(0)
			if p.s.Kind == Concurrency {
				p.release(first)
				p.served(zero, "one came back, and it overtakes no waiter")
				p.waits(big, "it needs 4")
				return
			}
			p.refill()
			p.served(big, "all came back")
			p.served(zero, "all came back: the zeros come first")
		}},
	{name: "a waiting zero adds nothing to QueuedPermits",
		rule: "Common 2", needs: ZeroPermits | Queue | Statistics, run: func(p *probe) {
			p.granted(4, "it is new")
			p.acquire(0)
			p.acquire(2)
			p.acquire(0)
			p.hasStatistics(0, 2, 1, 0, "two zeros and a 2 wait")
		}},
}
