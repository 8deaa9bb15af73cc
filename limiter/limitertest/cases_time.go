package limitertest

import (
	"fmt"
	"time"
)

var timeCases = []testCase{
	{name: "permits come back at the grid line and not before",
		rule: "Time", kinds: timedKinds, run: func(p *probe) {
			for unit := range time.Duration(3) {
				p.granted(4, "a new Unit began")
				p.untilJustBefore((unit + 1) * p.s.Unit)
				p.rejected(1, "the Unit is not over")
				p.until((unit + 1) * p.s.Unit)
			}
		}},
	{name: "the grid does not drift when it is asked late",
		rule: "Time", kinds: timedKinds, run: func(p *probe) {
			step := p.limits.Step(p.s.Kind)
			for _, tenths := range []time.Duration{13, 36, 66} {
				late := p.s.Unit * tenths / 10
				p.until(late)
				p.granted(4, "all came back long ago")
				back := late/step*step + p.s.Unit
				p.untilJustBefore(back)
				p.rejected(1, "the permits come back one Unit after the grid line before")
				p.until(back)
				p.granted(4, "the grid is where it was, however late it is asked")
			}
		}},
	{name: "a limiter that was not used does not save up",
		rule: "Time", kinds: timedKinds, run: func(p *probe) {
			p.granted(1, "it is new")
			p.until(p.s.Unit * 75 / 10)
			p.granted(4, "all came back")
			p.rejected(1, "there are no more than the limit, however long it was unused")
		}},
	{name: "all refills that have come are caught up at once",
		rule: "Time", kinds: []Kind{TokenBucket}, limits: permits(10, 2), run: func(p *probe) {
			p.granted(10, "it is new")
			p.until(p.s.Unit * 35 / 10)
			p.granted(6, "3 refills of 2 have come")
			p.rejected(1, "and no more")
			p.until(4 * p.s.Unit)
			p.granted(2, "the grid did not move")
			p.rejected(1, "a refill brings 2")
		}},
	{name: "a full bucket does not save up time",
		rule: "Time", kinds: []Kind{TokenBucket}, limits: permits(4, 1), run: func(p *probe) {
			p.until(p.s.Unit * 55 / 10)
			p.granted(4, "it is full")
			p.rejected(1, "the Units that it was full are lost")
			p.until(6 * p.s.Unit)
			p.granted(1, "a refill came")
			p.rejected(1, "a refill brings 1")
		}},
	{name: "what was taken in a segment comes back when that segment leaves the window",
		rule: "Time", kinds: []Kind{SlidingWindow}, run: func(p *probe) {
			segment := p.s.Unit / 4
			for i, n := range []int{1, 0, 2, 1} {
				p.until(time.Duration(i)*segment + segment/2)
				if n > 0 {
					p.granted(n, "there are as many")
				}
			}
			for i, n := range []int{1, 0, 2, 1} {
				line := time.Duration(i+4) * segment
				p.untilJustBefore(line)
				p.rejected(1, "all were taken in the last 4 segments")
				p.until(line)
				if n > 0 {
					p.granted(n, "a segment left")
				}
				p.rejected(1, "what another segment took is still out")
			}
		}},
	{name: "a queue grant is charged to the segment that it is granted in",
		rule: "Time", kinds: []Kind{SlidingWindow}, needs: Queue, run: func(p *probe) {
			w := p.fillQueue(0, 4)
			p.until(p.s.Unit)
			p.served(w[0], "all came back")
			p.untilJustBefore(2 * p.s.Unit)
			p.rejected(1, "it was granted one Unit after the start")
			p.until(2 * p.s.Unit)
			p.granted(4, "the segment left")
		}},
	{name: "waiters are served at the grid line, without another call",
		rule: "Time", kinds: timedKinds, needs: Queue, limits: withQueue(9), run: func(p *probe) {
			w := p.fillQueue(0, 2, 2, 4, 1)
			p.untilJustBefore(p.s.Unit)
			p.waits(w[0], "the Unit is not over")
			p.until(5 * p.s.Unit)
			for i, line := range []time.Duration{1, 1, 2, 3} {
				p.served(w[i], "permits came back")
				late := w[i].ended.Sub(p.start) - line*p.s.Unit
				if late < -p.s.Tolerance || late > 2*p.s.Tolerance {
					p.note(fmt.Sprintf("waiter %d is served at the grid line at %v", i, line*p.s.Unit), late.String()+" late")
				}
			}
		}},
	{name: "a waiter can need several refills",
		rule: "Time", kinds: []Kind{TokenBucket}, needs: Queue, limits: permits(4, 1), run: func(p *probe) {
			w := p.fillQueue(0, 3, 1)
			p.untilJustBefore(3 * p.s.Unit)
			p.waits(w[0], "2 refills have come")
			p.until(3 * p.s.Unit)
			p.served(w[0], "3 refills have come")
			p.waits(w[1], "nothing is left")
			p.until(4 * p.s.Unit)
			p.served(w[1], "another refill came")
		}},
}
