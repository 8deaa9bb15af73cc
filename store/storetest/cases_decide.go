package storetest

import (
	"fmt"
	"iter"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// bucketOf returns the limits of a bucket that is not refilled while a case runs.
func bucketOf(permits, refill int64) rate.Schedule {
	return rate.Schedule{Kind: rate.TokenBucket, Permits: permits, Period: time.Hour.Microseconds(), Refill: refill}
}

// slidingOf returns the limits of a sliding window that does not slide while a case runs.
func slidingOf(permits, segments int64) rate.Schedule {
	return rate.Schedule{Kind: rate.SlidingWindow, Permits: permits, Period: time.Hour.Microseconds(), Segments: segments}
}

// calendarOf returns the limits of a calendar.
func calendarOf(permits int64, every rate.Cycle) rate.Schedule {
	return rate.Limits{Kind: rate.Calendar, Permits: int(permits), Every: every, Zone: "America/St_Johns"}.Schedule(time.Microsecond)
}

// timedLimits returns limits with that number of permits, one for each kind of bucket and window.
func timedLimits(permits int64) []rate.Schedule {
	return []rate.Schedule{bucketOf(permits, 1), slowLimits(permits), slidingOf(permits, 5), calendarOf(permits, rate.Year)}
}

// timed yields, for each of the timedLimits, the definition of a limiter and a key.
func (p *probe) timed(permits int64) iter.Seq2[*backend.Definition, string] {
	return func(yield func(*backend.Definition, string) bool) {
		for _, l := range timedLimits(permits) {
			if kind := l.Kind.String(); !yield(p.defineNamed("-"+kind, l), kind) {
				return
			}
		}
	}
}

var decideCases = []testCase{
	{name: "what is available is granted, and no more", run: func(p *probe) {
		for d, key := range p.timed(4) {
			p.takes(d, key, 3, 3, "it is full")
			p.takes(d, key, 2, backend.Rejected, "1 is left")
			p.takes(d, key, 1, 1, "1 is left")
			p.takes(d, key, 1, backend.Rejected, "nothing is left")
		}
	}},
	{name: "zero permits are granted while one is left, and take nothing", run: func(p *probe) {
		for d, key := range p.timed(1) {
			p.takes(d, key, 0, 0, "it is full")
			p.takes(d, key, 1, 1, "the zero took nothing")
			p.takes(d, key, 0, backend.Rejected, "nothing is left")
		}
	}},
	{name: "a larger Max takes as many as are available", run: func(p *probe) {
		for d, key := range p.timed(5) {
			b := p.ask(d, key, backend.Request{Min: 2, Max: 3}, backend.Request{Min: 3, Max: 9}, backend.Request{Min: 2, Max: 9}, upTo(1))
			p.check(b.Granted[0] == 3 && b.Granted[1] == backend.Rejected && b.Granted[2] == 2, "3 of 5 are granted, then none, then the last 2", describe(b))
		}
	}},
	{name: "a request after a rejected one is rejected if it says so", run: func(p *probe) {
		ifPrevious := backend.Request{Min: 1, Max: 1, IfPrevious: true}
		for d, key := range p.timed(4) {
			b := p.ask(d, key, ifPrevious, take(9), ifPrevious, ifPrevious, take(1), ifPrevious)
			want := []int64{1, backend.Rejected, backend.Rejected, backend.Rejected, 1, 1}
			p.check(fmt.Sprint(b.Granted) == fmt.Sprint(want), fmt.Sprint("granted is ", want), describe(b))
		}
	}},
	{name: "a charge is taken even if it is not available", run: func(p *probe) {
		for d, key := range p.timed(4) {
			b := p.ask(d, key, charge(10), take(0))
			p.check(b.Granted[0] == 10 && b.Granted[1] == backend.Rejected && b.State.Missing == 10, "10 are missing of 4", describe(b))
		}
	}},
	{name: "a refund gives back what was taken, and no block", run: func(p *probe) {
		for d, key := range p.timed(6) {
			first := p.takes(d, key, 2, 2, "it is full")
			b := p.ask(d, key, refund(2, receiptOf(first)), refund(2, receiptOf(first)))
			p.check(b.Granted[0] == 2 && b.Granted[1] == 0 && b.State.Missing == 0, "2 are given back, once", describe(b))
			first = p.takes(d, key, 2, 2, "all was given back")
			p.ask(d, key, takeBlock(3))
			p.ask(d, key, take(1), refund(2, receiptOf(first)))
		}
	}},
	{name: "a refund gives back no more than lines have left of the grant", run: func(p *probe) {
		l := bucketOf(10, 5)
		l.Period = 300_000
		d := p.define(l)
		var a, b *backend.Batch
		for { // until all of it is on one line
			a = p.takes(d, "k", 5, 5, "it is full")
			b = p.takes(d, "k", 5, 5, "5 are left")
			back := p.ask(d, "k", refund(5, receiptOf(a)))
			if a.State.Line == back.State.Line {
				break
			}
			p.ask(d, "k", giveBack(10))
			p.eventually("all is forgotten", func() bool { s := p.ask(d, "k", take(0)).State; return s.Missing+s.Refunded == 0 })
		}
		p.eventually("a line comes", func() bool { return p.ask(d, "k", take(0)).State.Line > b.State.Line })
		p.ask(d, "k", take(5))
		last := p.ask(d, "k", refund(5, receiptOf(b)))
		p.check(last.Granted[0] == 0, "the line has brought back what b took, because a's permits had come back before", describe(last))
	}},
	{name: "permits of no grant in particular are given back, but no block", run: func(p *probe) {
		for d, key := range p.timed(6) {
			p.ask(d, key, take(4), charge(5))
			b := p.ask(d, key, giveBack(2), giveBack(100), giveBack(1))
			p.check(fmt.Sprint(b.Granted) == "[2 7 0]" && b.State.Missing == 0, "2 of 9 are given back, then the rest", describe(b))
		}
		d := p.define(bucketOf(6, 1))
		p.ask(d, "", take(1), takeBlock(2), charge(4))
		b := p.ask(d, "", giveBack(100))
		p.check(b.Granted[0] == 4 && b.State.Missing == 3, "what was taken since the block is given back", describe(b))
	}},
	{name: "a block is given back while nothing was taken since", run: func(p *probe) {
		d := p.define(bucketOf(6, 1))
		block := p.ask(d, "", takeBlock(3))
		p.check(block.State.Floor == 3, "3 are in a block", describe(block))
		b := p.ask(d, "", returnBlock(1, receiptOf(block)))
		p.check(b.Granted[0] == 1 && b.State.Missing == 2 && b.State.Floor == 2, "1 is given back of 3", describe(b))
		block = p.ask(d, "", takeBlock(2))
		p.takes(d, "", 1, 1, "one is left")
		b = p.ask(d, "", returnBlock(2, receiptOf(block)))
		p.check(b.Granted[0] == 0, "nothing is given back: one was taken since", describe(b))
	}},
	{name: "200 keys are decided in one call, each by itself", run: func(p *probe) {
		for d, key := range p.timed(5) {
			for range 3 {
				var batches []*backend.Batch
				for i := range int64(200) {
					batches = append(batches, batchOf(d, fmt.Sprint(key, i), take(1+i%4), take(0)))
				}
				p.decide(batches...)
			}
		}
	}},
	{name: "limiters of all kinds are decided in one call", run: func(p *probe) {
		var definitions []*backend.Definition
		for d := range p.timed(3) {
			definitions = append(definitions, d)
		}
		for range 4 {
			var batches []*backend.Batch
			for _, d := range definitions {
				batches = append(batches, batchOf(d, "", take(1)), batchOf(d, "k", upTo(2), take(1)))
			}
			p.decide(batches...)
		}
	}},
	{name: "all instances share the state", run: func(p *probe) {
		other := p.another()
		for d, key := range p.timed(4) {
			for _, b := range []backend.Backend{p.b, other, p.b, other, p.b} {
				p.decideBy(b, batchOf(d, key, take(1)))
			}
		}
	}},
	{name: "a call without batches or requests succeeds", run: func(p *probe) {
		p.works("Decide", p.b.Decide(p.ctx, nil))
		p.works("Acquire", p.b.Acquire(p.ctx, nil))
		p.works("Renew", p.b.Renew(p.ctx, nil))
		p.works("Release", p.b.Release(p.ctx, nil))
	}},
}
