package limitertest

import (
	"context"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// A rejecter is a limiter that calls before, if it is not nil, and then rejects.
type rejecter struct{ before func() }

func (r rejecter) TryAcquire(context.Context, int) (limiter.Lease, error) {
	if r.before != nil {
		r.before()
	}
	return custom.Rejected(0, "no"), nil
}

func (r rejecter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.TryAcquire(ctx, n)
}

// refundsByChain lets a chain take n permits and refund them, because its second limiter calls before and then rejects.
func (p *probe) refundsByChain(n int, before func()) {
	chain, err := limiter.Chain(p.l, rejecter{before})
	if err != nil {
		p.fail("a chain can be made", err)
	}
	lease, err := chain.TryAcquire(p.ctx, n)
	if err != nil || lease.Acquired() || lease.Reason() != "no" {
		p.fail("the chain is rejected by its second limiter", describe(lease, err))
	}
	p.settle()
}

var refundCases = []testCase{
	{name: "a chain that is rejected costs nothing",
		rule: "Chain", needs: Refund, run: func(p *probe) {
			for range 3 {
				p.refundsByChain(4, nil)
			}
			p.granted(3, "the chain gave all back")
			p.refundsByChain(1, nil)
			p.granted(1, "the chain gave it back")
			p.rejected(1, "and no more than that")
		}},
	{name: "a refund serves the queue",
		rule: "Refunds", needs: Refund | Queue, run: func(p *probe) {
			var w *waiter
			p.refundsByChain(4, func() {
				w = p.acquire(3)
				p.waits(w, "the chain holds all 4")
			})
			p.served(w, "the chain gave them back")
			p.granted(1, "1 is left")
			p.rejected(1, "nothing is left")
		}},
	{name: "a refund takes the success back",
		rule: "Common 8", kinds: timedKinds, needs: Refund | Statistics, run: func(p *probe) {
			p.granted(1, "it is new")
			p.refundsByChain(2, nil)
			p.hasStatistics(3, 0, 1, 0, "the chain's grant counts as never made")
		}},
	{name: "a refund goes back into the window that it came from, and is lost when that is over",
		rule: "Refunds", kinds: []Kind{FixedWindow, SlidingWindow, Calendar}, needs: Refund, run: func(p *probe) {
			p.refundsByChain(3, func() {
				p.until(p.s.Unit)
				p.granted(4, "a new Unit began")
			})
			p.rejected(1, "the refunded permits are of a Unit that is over")
		}},
	{name: "a bucket takes a refund back after a refill too",
		rule: "Refunds", kinds: []Kind{TokenBucket}, needs: Refund, limits: permits(4, 1), run: func(p *probe) {
			p.granted(2, "it is new")
			p.refundsByChain(2, func() { p.until(p.s.Unit) })
			p.granted(3, "2 were never taken, and a refill brought 1")
			p.rejected(1, "and no more")
		}},
	{name: "a refund fills nothing above the limit",
		rule: "Refunds", kinds: timedKinds, needs: Refund, run: func(p *probe) {
			p.refundsByChain(3, func() { p.until(p.s.Unit) })
			p.granted(4, "it is full")
			p.rejected(1, "it was full already")
		}},
}
