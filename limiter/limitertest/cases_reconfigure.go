package limitertest

import (
	"time"

	"github.com/weir-go/weir/limiter"
)

// reconfigure puts new limits in force.
func (p *probe) reconfigure(change func(l *Limits)) {
	l := p.limits
	change(&l)
	if err := p.s.Reconfigure(p.l, l); err != nil {
		p.fail("the new limits are taken", err)
	}
	p.limits = l
	p.settle()
}

var reconfigureCases = []testCase{
	{name: "a raised limit adds the difference to the old limit, and no more",
		rule: "Reconfigure", needs: reconfigurable, run: func(p *probe) {
			p.granted(3, "it is new")
			p.reconfigure(func(l *Limits) { l.Permits = 6 })
			p.rejected(4, "3 of 6 are in use")
			p.granted(3, "3 of 6 are in use")
			p.reconfigure(func(l *Limits) {})
			p.rejected(1, "the same limits again change nothing")
			p.refill()
			if p.s.Kind == TokenBucket {
				p.granted(4, "a refill brings 4")
			} else {
				p.granted(6, "the new limit is in force")
			}
		}},
	{name: "a raised limit serves the queue at once",
		rule: "Reconfigure", needs: reconfigurable | Queue, run: func(p *probe) {
			w := p.fillQueue(1, 2, 1, 1)
			p.reconfigure(func(l *Limits) { l.Permits = 6 })
			p.served(w[0], "3 are left")
			p.served(w[1], "1 is left")
			p.waits(w[2], "nothing is left")
		}},
	{name: "under a lowered limit what is in use counts in full",
		rule: "Reconfigure", needs: reconfigurable, run: func(p *probe) {
			first := p.granted(1, "it is new")
			p.granted(3, "3 are left")
			p.reconfigure(func(l *Limits) { l.Permits, l.TokensPerPeriod = 2, 1 })
			p.rejected(1, "4 are in use, and the limit is 2")
			p.tryAcquireFails(p.ctx, 3, "the limit is 2", limiter.ErrPermitCount)
			switch p.s.Kind {
			case Concurrency:
				p.release(first)
				p.rejected(1, "3 are in use, and the limit is 2")
			case TokenBucket:
				p.until(p.s.Unit)
				p.rejected(1, "3 are owed, and the limit is 2")
				p.until(2 * p.s.Unit)
				p.rejected(1, "2 are owed, and the limit is 2")
				p.until(3 * p.s.Unit)
				p.rejected(2, "1 is owed, and the limit is 2")
				p.granted(1, "1 is owed, and the limit is 2")
				p.until(5 * p.s.Unit)
			}
			p.refill()
			if p.s.Kind == TokenBucket {
				p.refill()
			}
			p.granted(2, "all came back, up to the new limit")
			p.rejected(1, "the limit is 2")
		}},
	{name: "a waiter that asks for more than a lowered limit is rejected, and those behind it are served if they can be",
		rule: "Reconfigure", needs: reconfigurable | Queue, run: func(p *probe) {
			w := p.fillQueue(2, 4, 1, 1)
			p.reconfigure(func(l *Limits) { l.Permits = 3 })
			p.rejectedWith(w[0], limiter.ReasonLimitLowered, "it asks for 4, and the limit is 3")
			p.served(w[1], "1 of 3 is left, and no waiter is before it")
			p.waits(w[2], "nothing is left")
			p.hasStatistics(0, 1, 2, 1, "a waiter that a lowered limit rejects is a failure")
		}},
	{name: "a lowered queue limit keeps the waiters",
		rule: "Reconfigure", needs: reconfigurable | Queue, run: func(p *probe) {
			w := p.fillQueue(0, 1, 3)
			p.reconfigure(func(l *Limits) { l.QueueLimit = 1 })
			p.waits(w[0], "it was there before")
			p.waits(w[1], "it was there before")
			p.rejectedWith(p.acquire(1), limiter.ReasonQueueLimit, "4 wait, and the limit is 1")
			p.refill()
			p.served(w[0], "permits came back")
			p.served(w[1], "permits came back")
		}},
	{name: "a new order holds for the present waiters, too",
		rule: "Reconfigure", needs: reconfigurable | Queue | NewestFirst, run: func(p *probe) {
			w := p.fillQueue(1, 2, 4, 1)
			p.reconfigure(func(l *Limits) { l.Order = limiter.NewestFirst })
			p.served(w[2], "it is the newest, and 1 is left")
			p.waits(w[1], "nothing is left")
			p.reconfigure(func(l *Limits) { l.Order = limiter.OldestFirst })
			p.refill()
			p.served(w[0], "it came first")
			p.waits(w[1], "it came later")
		}},
	{name: "invalid limits are an error and change nothing",
		rule: "Common 12", needs: reconfigurable, run: func(p *probe) {
			p.granted(1, "it is new")
			for _, change := range []func(l *Limits){
				func(l *Limits) { l.Permits = 0 },
				func(l *Limits) { l.QueueLimit = -1 },
			} {
				l := p.limits
				change(&l)
				p.isError(limiter.Lease{}, p.s.Reconfigure(p.l, l), "the limits are invalid", limiter.ErrInvalidOptions)
			}
			p.granted(3, "the old limits are in force")
			p.rejected(1, "the old limits are in force")
		}},
	{name: "a longer period counts from the grid line before",
		rule: "Reconfigure", kinds: []Kind{FixedWindow, SlidingWindow, TokenBucket}, needs: reconfigurable, run: func(p *probe) {
			p.until(p.s.Unit * 3 / 2)
			p.granted(4, "it is new")
			p.reconfigure(func(l *Limits) { l.Period = 2 * p.s.Unit })
			back := 3 * p.s.Unit
			if p.s.Kind == SlidingWindow { // taken in the segment that the new grid begins with
				back = p.s.Unit*3/2 + 2*p.s.Unit
			}
			p.untilJustBefore(back)
			p.rejected(4, "the new Period is not over")
			p.until(back)
			p.granted(4, "the new Period is over, counted from the grid line before the change")
		}},
	{name: "if the end of a shorter period is past, one period counts as over",
		rule: "Reconfigure", kinds: []Kind{FixedWindow, TokenBucket}, needs: reconfigurable, run: func(p *probe) {
			p.granted(4, "it is new")
			p.until(p.s.Unit * 8 / 10)
			p.reconfigure(func(l *Limits) { l.Period, l.TokensPerPeriod = p.s.Unit/4, 1 })
			changed := time.Since(p.start)
			if p.s.Kind == FixedWindow {
				p.granted(4, "a new window has begun")
			} else {
				p.granted(1, "one refill came: the new one, though three would have")
			}
			p.rejected(1, "it counts once")
			p.untilJustBefore(changed + p.s.Unit/4 - p.s.Tolerance)
			p.rejected(1, "the new grid starts with the change")
			p.until(changed + p.s.Unit/4)
			p.granted(1, "the new grid starts with the change")
		}},
	{name: "a sliding window keeps its counts when its segments change",
		rule: "Reconfigure", kinds: []Kind{SlidingWindow}, needs: reconfigurable, run: func(p *probe) {
			segment := p.s.Unit / 4
			p.granted(1, "it is new")
			p.until(segment * 5 / 2)
			p.granted(3, "3 are left")
			// The permits are in the segments 0 and 2 of four. The new grid has its lines at even segments, so they are
			// in the halves that begin at 0 and at 2.
			p.reconfigure(func(l *Limits) { l.Segments = 2 })
			p.rejected(1, "all are out")
			p.untilJustBefore(4 * segment)
			p.rejected(1, "the older half leaves at the next line")
			p.until(4 * segment)
			p.granted(1, "the older half left")
			p.rejected(1, "the newer half did not")
			p.untilJustBefore(6 * segment)
			p.rejected(1, "the newer half leaves at the line after")
			p.until(6 * segment)
			p.granted(3, "the newer half left")
		}},
	{name: "changing the limits again and again grants no more than the largest",
		rule: "Reconfigure", needs: reconfigurable, run: func(p *probe) {
			taken := 0
			for i := 0; i < 60 && time.Since(p.start) < p.s.Unit/2; i++ {
				p.reconfigure(func(l *Limits) { l.Permits = []int{4, 2, 6, 1}[i%4] })
				for n := p.limits.Permits; n > 0; n-- {
					if _, ok := p.grants(n); ok {
						taken += n
					}
				}
				if taken > 6 {
					p.fail("no more is granted than the largest limit, 6", taken)
				}
			}
			if taken != 6 {
				p.fail("as much is granted as the largest limit, 6", taken)
			}
		}},
}
