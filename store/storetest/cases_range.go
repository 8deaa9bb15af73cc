package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// maxMissing is the most that can be missing.
const maxMissing = rate.MaxDebt

// extremes returns the smallest and largest limits.
func extremes() (list []rate.Schedule) {
	for _, permits := range []int64{1, backend.MaxPermits - 1, backend.MaxPermits} {
		for _, period := range []int64{1, backend.MaxPeriod} {
			list = append(list,
				rate.Schedule{Kind: rate.TokenBucket, Permits: permits, Period: period, Refill: 1},
				rate.Schedule{Kind: rate.TokenBucket, Permits: permits, Period: period, Refill: permits},
				rate.Schedule{Kind: rate.FixedWindow, Permits: permits, Period: period},
				rate.Schedule{Kind: rate.SlidingWindow, Permits: permits, Period: max(period/1000, 1), Segments: 1000},
			)
		}
	}
	return list
}

var rangeCases = []testCase{
	{name: "large and small numbers are exact", run: func(p *probe) {
		for i, l := range extremes() {
			d, key := p.define(l), fmt.Sprint(i)
			p.ask(d, key, take(l.Permits))
			p.ask(d, key, take(1), upTo(backend.MaxPermits), take(0))
			b := p.ask(d, key, charge(1), charge(l.Permits-1), charge(3))
			p.ask(d, key, refund(3, receiptOf(b)), refund(maxMissing, receiptOf(b)), returnBlock(l.Permits, receiptOf(b)))
			b = p.ask(d, key, giveBack(2), charge(maxMissing))
			p.ask(d, key, refund(maxMissing, receiptOf(b)), giveBack(maxMissing))
			p.ask(d, key, takeBlock(l.Permits), takeBlock(1))
		}
	}},
	{name: "at most twice the largest number of permits can be missing", run: func(p *probe) {
		for i, l := range extremes() {
			d, key := p.define(l), fmt.Sprint(i)
			b := p.ask(d, key, charge(maxMissing-1), charge(5), charge(1))
			p.check(b.Granted[0] == maxMissing-1 && b.Granted[1] == 1 && b.Granted[2] == 0, "it is charged up to the bound", describe(b))
			p.ask(d, key, charge(maxMissing), take(1))
			p.ask(d, key, refund(1, receiptOf(b)), take(0))
		}
	}},
	{name: "numbers below 0 count as 0", run: func(p *probe) {
		for d, key := range p.timed(5) {
			b := p.ask(d, key, take(3))
			p.ask(d, key, charge(-1), take(-1), backend.Request{Min: -3, Max: 1})
			p.ask(d, key, takeBlock(-1), refund(-1, receiptOf(b)), returnBlock(-1, receiptOf(b)))
			p.ask(d, key, take(-1))
			p.ask(d, key, take(2), take(1))
		}
	}},
	{name: "lines can begin at any time", run: func(p *probe) {
		for i, anchor := range []int64{0, -1, -backend.MaxPeriod, backend.MaxPeriod, p.now() + 1, p.now() - 1} {
			for _, l := range append(timedLimits(3), fast(3, 10*time.Millisecond)...) {
				d := p.newDefinition(l)
				d.Anchor = anchor
				p.store(d)
				key := fmt.Sprint(i, l.Kind, l.Period)
				b := p.ask(d, key, take(2))
				p.ask(d, key, refund(1, receiptOf(b)), take(1))
			}
		}
	}},
}
