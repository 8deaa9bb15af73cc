package limitertest

import (
	"fmt"

	"github.com/weir-go/weir/limiter/custom"
)

// replenisher returns the limiter as a [custom.Replenisher].
func (p *probe) replenisher() custom.Replenisher { return optional[custom.Replenisher](p, "Manual") }

// replenish calls TryReplenish.
func (p *probe) replenish(r custom.Replenisher) {
	if !r.TryReplenish() {
		p.fail("TryReplenish is true on a limiter that is replenished by hand", false)
	}
	p.settle()
}

var manualCases = []testCase{
	{name: "TryReplenish does nothing where the limiter replenishes by itself",
		rule: "Time", kinds: timedKinds, needs: Manual, run: func(p *probe) {
			r := p.replenisher()
			if !r.AutoReplenishing() || r.ReplenishmentPeriod() != p.limits.Step(p.s.Kind) {
				p.fail("it replenishes by itself, once each grid line", fmt.Sprint(r.AutoReplenishing(), r.ReplenishmentPeriod()))
			}
			p.granted(4, "it is new")
			p.untilJustBefore(p.s.Unit)
			if r.TryReplenish() {
				p.fail("TryReplenish is false", true)
			}
			p.rejected(1, "the Unit is not over")
		}},
	{name: "time stands still between calls of TryReplenish",
		rule: "Time", kinds: timedKinds, needs: Manual | Queue, limits: manual, run: func(p *probe) {
			r := p.replenisher()
			if r.AutoReplenishing() {
				p.fail("the limiter does not replenish by itself", true)
			}
			w := p.fillQueue(0, 1)
			p.until(3 * p.s.Unit)
			p.waits(w[0], "TryReplenish was not called")
			p.rejected(0, "TryReplenish was not called")
			p.replenish(r)
			p.served(w[0], "3 Units have passed")
			p.granted(3, "all came back")
			p.rejected(1, "and no more")
		}},
	{name: "TryReplenish catches up with whole periods only",
		rule: "Time", kinds: timedKinds, needs: Manual, limits: manual, run: func(p *probe) {
			r := p.replenisher()
			p.granted(4, "it is new")
			p.untilJustBefore(p.s.Unit)
			p.replenish(r)
			p.rejected(4, "the Unit is not over")
			p.until(p.s.Unit * 25 / 10)
			p.replenish(r)
			p.granted(4, "all came back")
			p.untilJustBefore(3 * p.s.Unit)
			p.replenish(r)
			p.rejected(4, "the third Unit is not over")
			if p.s.Kind != SlidingWindow { // there the permits come back later
				p.until(3 * p.s.Unit)
				p.replenish(r)
				p.granted(4, "the grid did not move, however late TryReplenish was called")
			}
		}},
	{name: "TryReplenish adds all that has come before it serves the queue",
		rule: "Time", kinds: []Kind{TokenBucket}, needs: Manual | Queue, limits: manual, run: func(p *probe) {
			r := p.replenisher()
			w := p.fillQueue(0, 3, 3)
			p.until(3 * p.s.Unit)
			p.replenish(r)
			p.served(w[0], "3 refills filled it")
			p.waits(w[1], "3 refills fill it once; the queue is served when all are in")
			p.hasStatistics(1, 3, 2, 0, "3 of 4 were taken")
		}},
	{name: "RetryAfter of a limiter that is replenished by hand counts from the real clock",
		rule: "Common 7", kinds: timedKinds, needs: Manual | RetryAfter, limits: manual, run: func(p *probe) {
			p.granted(4, "it is new")
			p.until(p.s.Unit / 10)
			p.retriesAfter(p.rejected(1, "all were taken"), p.s.Unit*9/10-p.s.Tolerance, "a TryReplenish would help then")
			p.until(p.s.Unit * 3)
			d, ok := p.rejected(1, "TryReplenish was not called").RetryAfter()
			if !ok || d <= 0 || d > max(1, 2*p.s.Tolerance) {
				p.fail("RetryAfter is as short as can be: a TryReplenish would help now", fmt.Sprint(d, ok))
			}
		}},
}
