package limitertest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter/custom"
)

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

// idle returns the limiter's IdleDuration.
func (p *probe) idle() (time.Duration, bool) {
	return optional[custom.Idler](p, "Idle").IdleDuration()
}

var idleCases = []testCase{
	{name: "a new limiter is idle since it was made",
		rule: "Common 9", needs: Idle, run: func(p *probe) {
			p.idleSince(0, "it is new")
			p.until(p.s.Unit * 23 / 10)
			p.idleSince(0, "it is unused")
		}},
	{name: "a limiter is in use until all came back",
		rule: "Common 9", needs: Idle, run: func(p *probe) {
			p.granted(1, "it is new")
			p.inUse("1 is taken")
			p.untilJustBefore(p.s.Unit)
			p.inUse("1 is taken")
			p.refill()
			if _, ok := p.idle(); !ok {
				p.fail("the limiter is idle: all came back", "it is in use")
			}
		}},
	{name: "a refilled limiter is idle since the grid line that filled it, however late it is asked",
		rule: "Common 9", kinds: timedKinds, needs: Idle, run: func(p *probe) {
			p.granted(3, "it is new")
			p.until(p.s.Unit * 57 / 10)
			p.idleSince(p.s.Unit, "it was full one Unit after the start")
		}},
	{name: "a concurrency limiter is idle since the Release that made it full, or since it was asked after that",
		rule: "Common 9", kinds: []Kind{Concurrency}, needs: Idle, run: func(p *probe) {
			a, b := p.granted(1, "it is new"), p.granted(2, "3 are left")
			p.until(p.s.Unit)
			p.release(a)
			p.inUse("2 are held")
			p.until(2 * p.s.Unit)
			released := time.Since(p.start)
			p.release(b)
			p.until(3 * p.s.Unit)
			first, ok := p.idle()
			since := time.Since(p.start) - first
			if !ok || since < released-2*p.s.Tolerance {
				p.fail("the limiter is idle since the Release at most", fmt.Sprintf("idle for %v, %v", first, ok))
			}
			p.until(5 * p.s.Unit)
			p.idleSince(since, "it was asked before")
		}},
	{name: "zeros and rejections do not end idleness",
		rule: "Common 9", needs: Idle | ZeroPermits, run: func(p *probe) {
			p.until(p.s.Unit / 2)
			p.granted(0, "it is new").Release()
			p.served(p.acquire(0), "it is new")
			_, _ = p.l.TryAcquire(p.ctx, 5)
			_, _ = p.l.TryAcquire(endedContext(), 1)
			p.idleSince(0, "nothing was taken")
		}},
}
