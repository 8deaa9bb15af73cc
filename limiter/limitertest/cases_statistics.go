package limitertest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
)

var statisticsCases = []testCase{
	{
		name: "the statistics of a new limiter are its limit and zeros", rule: "Common 8", needs: Statistics,
		run: func(p *probe) {
			p.with(p.usual())
			p.figures(4, 0, 0, 0, "it is unused")
		},
	},
	{
		name: "successes and failures are counted, errors are not", rule: "Common 8", needs: Statistics,
		run: func(p *probe) {
			p.withOrder(limiter.OldestFirst, 0)
			p.granted(3, "it is new")
			p.served(p.acquire(1), "1 is left")
			p.figures(0, 0, 2, 0, "2 were granted")
			p.rejected(2, "nothing is left")
			p.rejectedNoQueue(p.acquire(1), "nothing is left, and there is no queue")
			p.figures(0, 0, 2, 2, "2 were granted and 2 rejected")
			p.bothOutOfRange(-1, "it is negative")
			_, _ = p.l.Acquire(gone(), 1)
			_, _ = p.l.TryAcquire(gone(), 1)
			p.figures(0, 0, 2, 2, "errors are neither successes nor failures")
		},
	},
	{
		name: "zeros are counted", rule: "Common 8", needs: Statistics | ZeroPermits,
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(0, "it is new")
			p.served(p.acquire(0), "it is new")
			p.granted(4, "zeros take nothing")
			p.rejected(0, "nothing is left")
			p.figures(0, 0, 3, 1, "3 were granted, of which 2 zeros, and a zero rejected")
		},
	},
	{
		name: "waiters are counted by their permits, and as successes when they are served", rule: "Common 8", needs: Statistics | Queue,
		run: func(p *probe) {
			p.with(p.usual())
			w := p.crowd(0, 2, 3)
			p.figures(0, 5, 1, 0, "2 and 3 wait")
			p.refill()
			p.served(w[0], "permits came back")
			p.figures(2, 3, 2, 0, "3 wait")
			p.refill()
			p.served(w[1], "permits came back")
			p.figures(1, 0, 3, 0, "all were served")
		},
	},
	{
		name: "a cancelled wait is neither success nor failure", rule: "Common 8", needs: Statistics | Queue,
		run: func(p *probe) {
			p.with(p.usual())
			w := p.crowd(0, 2, 3)
			p.leaves(w[0])
			p.figures(0, 3, 1, 0, "the first was cancelled")
			p.leaves(w[1])
			p.figures(0, 0, 1, 0, "both were cancelled")
		},
	},
	{
		name: "a waiter that is pushed out is a failure", rule: "Common 8", needs: Statistics | Queue | NewestFirst,
		run: func(p *probe) {
			p.withOrder(limiter.NewestFirst, 3)
			p.crowd(0, 1, 1)
			p.acquire(3)
			p.figures(0, 3, 1, 2, "two were pushed out")
		},
	},
	{
		name: "permits that came back are in the statistics without another call", rule: "Time", needs: Statistics,
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(3, "it is new")
			p.refill()
			p.figures(4, 0, 1, 0, "all came back")
		},
	},
}

// idleSince expects that the limiter has been idle since that long after the start.
func (p *probe) idleSince(since time.Duration, why string) {
	want := time.Since(p.start) - since
	got, ok := p.idle()
	if diff := got - want; !ok || diff < -2*p.s.Tolerance || diff > 2*p.s.Tolerance {
		p.fail(fmt.Sprintf("IdleDuration is %v: %s", want, why), fmt.Sprintf("%v, %v", got, ok))
	}
}

// inUse expects that the limiter is not idle.
func (p *probe) inUse(why string) {
	if got, ok := p.idle(); ok {
		p.fail("the limiter is in use: "+why, fmt.Sprintf("idle for %v", got))
	}
}

func (p *probe) idle() (time.Duration, bool) {
	i, ok := p.l.(limiter.Idler)
	if !ok {
		p.fail("the limiter is an Idler, or Subject.Lacks says Idle", fmt.Sprintf("%T", p.l))
	}
	return i.IdleDuration()
}

var idleCases = []testCase{
	{
		name: "a new limiter is idle since it was made", rule: "Common 9", needs: Idle,
		run: func(p *probe) {
			p.with(p.usual())
			p.idleSince(0, "it is new")
			p.until(p.s.Unit * 23 / 10)
			p.idleSince(0, "it is unused")
		},
	},
	{
		name: "a limiter is in use until all came back", rule: "Common 9", needs: Idle,
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(1, "it is new")
			p.inUse("1 is taken")
			p.shortly(p.s.Unit)
			p.inUse("1 is taken")
			p.refill()
			if _, ok := p.idle(); !ok {
				p.fail("the limiter is idle: all came back", "it is in use")
			}
		},
	},
	{
		name: "a refilled limiter is idle since the grid line that filled it, however late it is asked", rule: "Common 9", needs: Idle,
		kinds: []Kind{FixedWindow, SlidingWindow, TokenBucket},
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(3, "it is new")
			p.until(p.s.Unit * 57 / 10)
			p.idleSince(p.s.Unit, "it was full one Unit after the start")
		},
	},
	{
		name: "a concurrency limiter is idle since the Release that made it full", rule: "Common 9", needs: Idle, kinds: []Kind{Concurrency},
		run: func(p *probe) {
			p.with(p.usual())
			a, b := p.granted(1, "it is new"), p.granted(2, "3 are left")
			p.until(p.s.Unit)
			a.Release()
			p.settle()
			p.inUse("2 are held")
			p.until(2 * p.s.Unit)
			released := time.Since(p.start)
			b.Release()
			p.settle()
			p.until(5 * p.s.Unit)
			p.idleSince(released, "it was full then")
		},
	},
	{
		name: "zeros and rejections do not end idleness", rule: "Common 9", needs: Idle | ZeroPermits,
		run: func(p *probe) {
			p.with(p.usual())
			p.until(p.s.Unit / 2)
			p.granted(0, "it is new").Release()
			p.served(p.acquire(0), "it is new")
			_, _ = p.l.TryAcquire(p.ctx, 5)
			_, _ = p.l.TryAcquire(gone(), 1)
			p.idleSince(0, "nothing was taken")
		},
	},
}
