package limitertest

import "github.com/weir-go/weir/limiter"

// fillQueue takes all permits but free, and begins Acquires of these numbers, which must wait.
func (p *probe) fillQueue(free int, ns ...int) []*waiter {
	p.granted(p.limits.Permits-free, "it is new")
	var ws []*waiter
	for _, n := range ns {
		w := p.acquire(n)
		p.waits(w, "there is room in the queue, and too little to take")
		ws = append(ws, w)
	}
	return ws
}

var queueCases = []testCase{
	{name: "without a queue Acquire is rejected at once",
		rule: "Common 3", limits: withQueue(0), run: func(p *probe) {
			p.served(p.acquire(4), "it is new")
			w := p.acquire(1)
			p.rejectedWith(w, limiter.ReasonNoPermit, "there is no queue")
		}},
	{name: "the queue limit bounds the sum of permits, not the number of waiters",
		rule: "Common 3", needs: Queue, limits: withQueue(5), run: func(p *probe) {
			p.fillQueue(0, 1, 3)
			p.rejectedWith(p.acquire(2), limiter.ReasonQueueLimit, "4 of 5 wait, and 2 are asked for")
			p.waits(p.acquire(1), "4 of 5 wait, and 1 is asked for")
			p.rejectedWith(p.acquire(1), limiter.ReasonQueueLimit, "5 of 5 wait")
		}},
	{name: "oldest first: no caller overtakes the queue",
		rule: "Common 3", needs: Queue, limits: withQueue(3), run: func(p *probe) {
			w := p.fillQueue(1, 2)
			p.rejected(1, "one is left, but a waiter is before it")
			next := p.acquire(1)
			p.waits(next, "one is left, but a waiter is before it")
			p.rejectedWith(p.acquire(1), limiter.ReasonQueueLimit, "one is left, but the queue is full")
			p.refill()
			p.served(w[0], "permits came back")
			p.served(next, "permits came back")
		}},
	{name: "oldest first: waiters are served in the order in which they came",
		rule: "Common 4", needs: Queue, run: func(p *probe) {
			w := p.fillQueue(0, 2, 3, 1)
			p.refill()
			p.served(w[0], "4 came back, and it is the oldest")
			p.waits(w[1], "it needs 3, and 2 are left")
			p.waits(w[2], "it comes after one that needs more than there is")
			p.refill()
			p.served(w[1], "it is the oldest")
			p.served(w[2], "one is left for it")
		}},
	{name: "oldest first: the head holds up waiters that need less",
		rule: "Common 4", needs: Queue, run: func(p *probe) {
			w := p.fillQueue(2, 3, 1, 1)
			p.settle()
			p.waits(w[1], "2 are left, but the head needs 3")
			p.refill()
			p.served(w[0], "permits came back")
			p.served(w[1], "permits came back")
			p.waits(w[2], "all 4 are taken")
		}},
	{name: "newest first: the newest waiter is served first",
		rule: "Common 4", needs: Queue | NewestFirst, limits: newestFirst(8), run: func(p *probe) {
			w := p.fillQueue(0, 1, 3, 2)
			p.refill()
			p.served(w[2], "it is the newest")
			p.waits(w[1], "it needs 3, and 2 are left")
			p.waits(w[0], "it comes after one that needs more than there is")
			p.refill()
			p.served(w[1], "it is the newest")
			p.served(w[0], "one is left for it")
		}},
	{name: "newest first: a newcomer takes free permits past the queue",
		rule: "Common 3", needs: Queue | NewestFirst, limits: newestFirst(8), run: func(p *probe) {
			w := p.fillQueue(2, 3)
			p.granted(1, "2 are left")
			p.served(p.acquire(1), "1 is left")
			p.waits(w[0], "nothing is left")
		}},
	{name: "newest first: a newcomer pushes out the oldest until it fits",
		rule: "Common 3", needs: Queue | NewestFirst, limits: newestFirst(4), run: func(p *probe) {
			w := p.fillQueue(0, 1, 2, 1)
			newcomer := p.acquire(3)
			p.rejectedWith(w[0], limiter.ReasonQueueLimit, "it is the oldest, and 3 need room")
			p.rejectedWith(w[1], limiter.ReasonQueueLimit, "it is the next oldest, and 3 need room")
			p.waits(w[2], "there is room for it")
			p.waits(newcomer, "there is room for it")
			p.refill()
			p.served(newcomer, "permits came back")
			p.served(w[2], "permits came back")
		}},
	{name: "newest first: a request that is larger than the queue is rejected and pushes no waiter out",
		rule: "Common 3", needs: Queue | NewestFirst, limits: newestFirst(2), run: func(p *probe) {
			w := p.fillQueue(0, 1, 1)
			p.rejectedWith(p.acquire(3), limiter.ReasonQueueLimit, "it is larger than the whole queue")
			p.waits(w[0], "no waiter is pushed out in vain")
			p.waits(w[1], "no waiter is pushed out in vain")
		}},
	{name: "a plain rejection has no reason",
		rule: "Common 7", run: func(p *probe) {
			p.granted(4, "it is new")
			if lease := p.rejected(1, "all were taken"); lease.Reason() != "" {
				p.fail("a TryAcquire that found too few permits has no reason", describe(lease, nil))
			}
		}},
}
