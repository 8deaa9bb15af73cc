package limitertest

import (
	"context"
	"math"

	"github.com/weir-go/weir/limiter"
)

// refuses is a limiter that rejects, after calling meanwhile.
type refuses struct{ meanwhile func() }

func (r refuses) TryAcquire(context.Context, int) (limiter.Lease, error) {
	if r.meanwhile != nil {
		r.meanwhile()
	}
	return limiter.Rejected(0, "no"), nil
}

func (r refuses) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.TryAcquire(ctx, n)
}

// undone lets a chain take n permits that its second limiter then rejects, so that they are refunded.
func (p *probe) undone(n int, meanwhile func()) {
	chain, err := limiter.Chain(p.l, refuses{meanwhile})
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
	{
		name: "a chain that is rejected costs nothing", rule: "Chain", needs: Refund,
		run: func(p *probe) {
			p.with(p.usual())
			for range 3 {
				p.undone(4, nil)
			}
			p.granted(3, "the chain gave all back")
			p.undone(1, nil)
			p.granted(1, "the chain gave it back")
			p.rejected(1, "and no more than that")
		},
	},
	{
		name: "a refund serves the queue", rule: "Chain", needs: Refund | Queue,
		run: func(p *probe) {
			p.with(p.usual())
			var w *waiter
			p.undone(4, func() {
				w = p.acquire(3)
				p.waits(w, "the chain holds all 4")
			})
			p.served(w, "the chain gave them back")
			p.granted(1, "1 is left")
			p.rejected(1, "nothing is left")
		},
	},
	{
		name: "a refund takes the success back", rule: "Common 8", needs: Refund | Statistics, kinds: timedKinds,
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(1, "it is new")
			p.undone(2, nil)
			p.figures(3, 0, 1, 0, "the chain's grant counts as never made")
		},
	},
	{
		name: "a refund goes back into the window that it came from, and nowhere when that is over", rule: "Chain", needs: Refund,
		kinds: []Kind{FixedWindow, SlidingWindow},
		run: func(p *probe) {
			p.with(p.usual())
			p.undone(3, func() {
				p.until(p.s.Unit)
				p.granted(4, "a new Unit began")
			})
			p.rejected(1, "the refunded permits are of a Unit that is over")
		},
	},
	{
		name: "a bucket takes a refund back after a refill too", rule: "Chain", needs: Refund, kinds: []Kind{TokenBucket},
		run: func(p *probe) {
			l := p.usual()
			l.TokensPerPeriod = 1
			p.with(l)
			p.granted(2, "it is new")
			p.undone(2, func() { p.until(p.s.Unit) })
			p.granted(3, "2 were never taken, and a refill brought 1")
			p.rejected(1, "and no more")
		},
	},
	{
		name: "a refund fills nothing above the limit", rule: "Chain", needs: Refund, kinds: timedKinds,
		run: func(p *probe) {
			p.with(p.usual())
			p.undone(3, func() { p.until(p.s.Unit) })
			p.granted(4, "it is full")
			p.rejected(1, "it was full already")
		},
	},
}

var unlimitedCases = []testCase{
	{
		name: "everything is granted", rule: "Unlimited", kinds: []Kind{Unlimited},
		run: func(p *probe) {
			p.with(p.usual())
			for _, n := range []int{0, 1, 1 << 30, math.MaxInt/2 + 2} {
				p.granted(n, "there is no limit").Release()
				p.served(p.acquire(n), "there is no limit")
			}
			lease, err := p.l.TryAcquire(p.ctx, -1)
			p.isError(lease, err, "there is no such number of permits", limiter.ErrPermitCount)
			lease, err = p.l.Acquire(gone(), 1)
			p.isError(lease, err, "the context was done before", context.Canceled)
		},
	},
	{
		name: "an unlimited limiter is idle since its last use", rule: "Common 9", kinds: []Kind{Unlimited}, needs: Idle,
		run: func(p *probe) {
			p.with(p.usual())
			p.until(p.s.Unit)
			p.idleSince(0, "it is unused")
			used := p.s.Unit + p.s.Tolerance
			p.granted(1, "there is no limit")
			p.until(3 * p.s.Unit)
			p.idleSince(used, "it was used then")
		},
	},
	{
		name: "a closed unlimited limiter answers ErrClosed", rule: "Common 6", kinds: []Kind{Unlimited}, needs: Close,
		run: func(p *probe) {
			p.with(p.usual())
			p.close()
			p.close()
			lease, err := p.l.TryAcquire(p.ctx, 1)
			p.isError(lease, err, "it is closed", limiter.ErrClosed)
			lease, err = p.l.Acquire(p.ctx, 1)
			p.isError(lease, err, "it is closed", limiter.ErrClosed)
		},
	},
}
