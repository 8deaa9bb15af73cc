package limitertest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
)

var timedKinds = []Kind{FixedWindow, SlidingWindow, TokenBucket}

var timeCases = []testCase{
	{
		name: "permits come back at the grid line and not before", rule: "Time", kinds: timedKinds,
		run: func(p *probe) {
			p.with(p.usual())
			for unit := range time.Duration(3) {
				p.granted(4, "a new Unit began")
				p.shortly((unit + 1) * p.s.Unit)
				p.rejected(1, "the Unit is not over")
				p.until((unit + 1) * p.s.Unit)
			}
		},
	},
	{
		name: "the grid does not drift when it is asked late", rule: "Time", kinds: timedKinds,
		run: func(p *probe) {
			p.with(p.usual())
			step := p.limits.Step(p.s.Kind)
			for _, tenths := range []time.Duration{13, 36, 66} {
				late := p.s.Unit * tenths / 10
				p.until(late)
				p.granted(4, "all came back long ago")
				back := late/step*step + p.s.Unit
				p.shortly(back)
				p.rejected(1, "the permits come back one Unit after the grid line before")
				p.until(back)
				p.granted(4, "the grid is where it was, however late it is asked")
			}
		},
	},
	{
		name: "a limiter that was not used does not save up", rule: "Time", kinds: timedKinds,
		run: func(p *probe) {
			p.with(p.usual())
			p.granted(1, "it is new")
			p.until(p.s.Unit * 75 / 10)
			p.granted(4, "all came back")
			p.rejected(1, "there are no more than the limit, however long it was unused")
		},
	},
	{
		name: "all refills that have come are caught up at once", rule: "Time", kinds: []Kind{TokenBucket},
		run: func(p *probe) {
			l := p.usual()
			l.Permits, l.TokensPerPeriod = 10, 2
			p.with(l)
			p.granted(10, "it is new")
			p.until(p.s.Unit * 35 / 10)
			p.granted(6, "3 refills of 2 have come")
			p.rejected(1, "and no more")
			p.until(4 * p.s.Unit)
			p.granted(2, "the grid did not move")
			p.rejected(1, "a refill brings 2")
		},
	},
	{
		name: "a full bucket does not save up time", rule: "Time", kinds: []Kind{TokenBucket},
		run: func(p *probe) {
			l := p.usual()
			l.TokensPerPeriod = 1
			p.with(l)
			p.until(p.s.Unit * 55 / 10)
			p.granted(4, "it is full")
			p.rejected(1, "the Units that it was full are lost")
			p.until(6 * p.s.Unit)
			p.granted(1, "a refill came")
			p.rejected(1, "a refill brings 1")
		},
	},
	{
		name: "what was taken in a segment comes back when that segment leaves the window", rule: "Time", kinds: []Kind{SlidingWindow},
		run: func(p *probe) {
			p.with(p.usual())
			segment := p.s.Unit / 4
			for i, n := range []int{1, 0, 2, 1} {
				p.until(time.Duration(i)*segment + segment/2)
				if n > 0 {
					p.granted(n, "there are as many")
				}
			}
			for i, n := range []int{1, 0, 2, 1} {
				line := time.Duration(i+4) * segment
				p.shortly(line)
				p.rejected(1, "all were taken in the last 4 segments")
				p.until(line)
				if n > 0 {
					p.granted(n, "a segment left")
				}
				p.rejected(1, "what another segment took is still out")
			}
		},
	},
	{
		name: "a queue grant is charged to the segment that it is granted in", rule: "Time", kinds: []Kind{SlidingWindow}, needs: Queue,
		run: func(p *probe) {
			p.with(p.usual())
			w := p.crowd(0, 4)
			p.until(p.s.Unit)
			p.served(w[0], "all came back")
			p.shortly(2 * p.s.Unit)
			p.rejected(1, "it was granted one Unit after the start")
			p.until(2 * p.s.Unit)
			p.granted(4, "the segment left")
		},
	},
	{
		name: "waiters are served at the grid line, without another call", rule: "Time", kinds: timedKinds, needs: Queue,
		run: func(p *probe) {
			p.withOrder(limiter.OldestFirst, 9)
			w := p.crowd(0, 2, 2, 4, 1)
			p.shortly(p.s.Unit)
			p.waits(w[0], "the Unit is not over")
			p.until(5 * p.s.Unit)
			for i, line := range []time.Duration{1, 1, 2, 3} {
				p.served(w[i], "permits came back")
				late := w[i].at.Sub(p.start) - line*p.s.Unit
				if late < -p.s.Tolerance || late > 2*p.s.Tolerance {
					p.note(fmt.Sprintf("waiter %d is served at the grid line at %v", i, line*p.s.Unit), late.String()+" late")
				}
			}
		},
	},
	{
		name: "a waiter can need several refills", rule: "Time", kinds: []Kind{TokenBucket}, needs: Queue,
		run: func(p *probe) {
			l := p.usual()
			l.TokensPerPeriod = 1
			p.with(l)
			w := p.crowd(0, 3, 1)
			p.shortly(3 * p.s.Unit)
			p.waits(w[0], "2 refills have come")
			p.until(3 * p.s.Unit)
			p.served(w[0], "3 refills have come")
			p.waits(w[1], "nothing is left")
			p.until(4 * p.s.Unit)
			p.served(w[1], "another refill came")
		},
	},
}

// replenisher returns the limiter as a [limiter.Replenisher].
func (p *probe) replenisher() limiter.Replenisher {
	r, ok := p.l.(limiter.Replenisher)
	if !ok {
		p.fail("the limiter is a Replenisher, or Subject.Lacks says Manual", fmt.Sprintf("%T", p.l))
	}
	return r
}

// manually makes a limiter that is replenished by hand.
func (p *probe) manually() limiter.Replenisher {
	l := p.usual()
	l.Manual = true
	p.with(l)
	return p.replenisher()
}

// replenish calls TryReplenish.
func (p *probe) replenish(r limiter.Replenisher) {
	if !r.TryReplenish() {
		p.fail("TryReplenish is true on a limiter that is replenished by hand", false)
	}
	p.settle()
}

var manualCases = []testCase{
	{
		name: "TryReplenish does nothing where the limiter replenishes by itself", rule: "Time", kinds: timedKinds, needs: Manual,
		run: func(p *probe) {
			p.with(p.usual())
			r := p.replenisher()
			if !r.AutoReplenishing() || r.ReplenishmentPeriod() != p.limits.Step(p.s.Kind) {
				p.fail("it replenishes by itself, once each grid line", fmt.Sprint(r.AutoReplenishing(), r.ReplenishmentPeriod()))
			}
			p.granted(4, "it is new")
			p.shortly(p.s.Unit)
			if r.TryReplenish() {
				p.fail("TryReplenish is false", true)
			}
			p.rejected(1, "the Unit is not over")
		},
	},
	{
		name: "time stands still between calls of TryReplenish", rule: "Time", kinds: timedKinds, needs: Manual | Queue,
		run: func(p *probe) {
			r := p.manually()
			if r.AutoReplenishing() {
				p.fail("the limiter does not replenish by itself", true)
			}
			w := p.crowd(0, 1)
			p.until(3 * p.s.Unit)
			p.waits(w[0], "TryReplenish was not called")
			p.rejected(0, "TryReplenish was not called")
			p.replenish(r)
			p.served(w[0], "3 Units have passed")
			p.granted(3, "all came back")
			p.rejected(1, "and no more")
		},
	},
	{
		name: "TryReplenish catches up with whole periods only", rule: "Time", kinds: timedKinds, needs: Manual,
		run: func(p *probe) {
			r := p.manually()
			p.granted(4, "it is new")
			p.shortly(p.s.Unit)
			p.replenish(r)
			p.rejected(4, "the Unit is not over")
			p.until(p.s.Unit * 25 / 10)
			p.replenish(r)
			p.granted(4, "all came back")
			p.shortly(3 * p.s.Unit)
			p.replenish(r)
			p.rejected(4, "the third Unit is not over")
			if p.s.Kind != SlidingWindow { // there the permits come back later
				p.until(3 * p.s.Unit)
				p.replenish(r)
				p.granted(4, "the grid did not move, however late TryReplenish was called")
			}
		},
	},
	{
		name: "TryReplenish adds all that has come before it serves the queue", rule: "Time", kinds: []Kind{TokenBucket}, needs: Manual | Queue,
		run: func(p *probe) {
			r := p.manually()
			w := p.crowd(0, 3, 3)
			p.until(3 * p.s.Unit)
			p.replenish(r)
			p.served(w[0], "3 refills filled it")
			p.waits(w[1], "3 refills fill it once; the queue is served when all are in")
			p.figuresOrSkip(1, 3, 2, 0, "3 of 4 were taken")
		},
	},
	{
		name: "RetryAfter of a limiter that is replenished by hand counts from the real clock", rule: "Common 7", kinds: timedKinds, needs: Manual | RetryAfter,
		run: func(p *probe) {
			p.manually()
			p.granted(4, "it is new")
			p.until(p.s.Unit / 10)
			p.retriesAfter(p.rejected(1, "all were taken"), p.s.Unit*9/10-p.s.Tolerance, "a TryReplenish would help then")
			p.until(p.s.Unit * 3)
			d, ok := p.rejected(1, "TryReplenish was not called").RetryAfter()
			if !ok || d <= 0 || d > max(1, 2*p.s.Tolerance) {
				p.fail("RetryAfter is as short as can be: a TryReplenish would help now", fmt.Sprint(d, ok))
			}
		},
	},
}

// figuresOrSkip is figures if the limiter has statistics.
func (p *probe) figuresOrSkip(available, queued, successes, failures int64, why string) {
	if p.s.Lacks&Statistics == 0 {
		p.figures(available, queued, successes, failures, why)
	}
}
