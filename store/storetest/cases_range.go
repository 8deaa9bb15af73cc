package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

const (
	mostPermits = int64(1) << 50
	mostOwed    = 2 * mostPermits
	mostPeriod  = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
)

// extremes returns the smallest and largest limits.
func extremes() (list []backend.Limits) {
	for _, permits := range []int64{1, mostPermits - 1, mostPermits} {
		for _, period := range []int64{1, mostPeriod} {
			list = append(list,
				backend.Limits{Kind: backend.KindTokenBucket, Permits: permits, Period: period, Refill: 1},
				backend.Limits{Kind: backend.KindTokenBucket, Permits: permits, Period: period, Refill: permits},
				backend.Limits{Kind: backend.KindFixedWindow, Permits: permits, Period: period},
				backend.Limits{Kind: backend.KindSlidingWindow, Permits: permits, Period: max(period/1000, 1), Segments: 1000},
			)
		}
	}
	return list
}

var rangeCases = []testCase{
	{
		name: "large and small numbers are exact",
		run: func(p *probe) {
			for i, l := range extremes() {
				d, key := p.define(l), fmt.Sprint(i)
				p.ask(d, key, take(l.Permits))
				p.ask(d, key, take(1), upTo(mostPermits), take(0))
				b := p.ask(d, key, charge(1), charge(l.Permits-1), charge(3))
				p.ask(d, key, refund(3, receiptOf(b.State)), refund(mostOwed, receiptOf(b.State)), returnBlock(l.Permits, receiptOf(b.State)))
				p.ask(d, key, takeBlock(l.Permits), takeBlock(1))
			}
		},
	},
	{
		name: "no more can be owed than twice the largest number of permits",
		run: func(p *probe) {
			for i, l := range extremes() {
				d, key := p.define(l), fmt.Sprint(i)
				b := p.ask(d, key, charge(mostOwed-1), charge(5), charge(1))
				p.check(b.Granted[0] == mostOwed-1 && b.Granted[1] == 1 && b.Granted[2] == 0, "it is charged up to the bound", describe(b))
				p.ask(d, key, charge(mostOwed), take(1))
				p.ask(d, key, refund(1, receiptOf(b.State)), take(0))
			}
		},
	},
	{
		name: "numbers below 0 count as 0",
		run: func(p *probe) {
			for i, l := range timed(5) {
				d, key := p.define(l), fmt.Sprint(i)
				b := p.ask(d, key, take(3))
				p.ask(d, key, charge(-1), take(-1), backend.Request{Min: -3, Max: 1})
				p.ask(d, key, takeBlock(-1), refund(-1, receiptOf(b.State)), returnBlock(-1, receiptOf(b.State)))
				p.ask(d, key, take(-1))
				p.ask(d, key, take(2), take(1))
			}
		},
	},
	{
		name: "a grid may lie anywhere",
		run: func(p *probe) {
			for i, anchor := range []int64{0, -1, -mostPeriod, mostPeriod, p.now() + 1, p.now() - 1} {
				for _, l := range append(timed(3), fast(3, 10*time.Millisecond)...) {
					d := p.define(l)
					d.Anchor = anchor
					key := fmt.Sprint(i, l.Kind, l.Period)
					b := p.ask(d, key, take(2))
					p.ask(d, key, refund(1, receiptOf(b.State)), take(1))
				}
			}
		},
	},
}
