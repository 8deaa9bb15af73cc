package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// fast returns limits whose permits have all come back after that time.
func fast(permits int64, in time.Duration) []rate.Schedule {
	period := in.Microseconds()
	return []rate.Schedule{
		{Kind: rate.TokenBucket, Permits: permits, Period: period / 5, Refill: (permits + 4) / 5},
		{Kind: rate.FixedWindow, Permits: permits, Period: period},
		{Kind: rate.SlidingWindow, Permits: permits, Period: period / 4, Segments: 4},
	}
}

var timeCases = []testCase{
	{name: "permits come back when they are due, and not before", run: func(p *probe) {
		for _, l := range fast(5, 200*time.Millisecond) {
			d, key := p.define(l), l.Kind.String()
			p.takes(d, key, 5, 5, "it is full")
			for n := range int64(2) { // the model checks both answers
				p.eventually("permits come back", func() bool { return p.ask(d, key, take(1+n)).Granted[0] > 0 })
			}
		}
	}},
	{name: "a key that is used all the time is not forgotten", run: func(p *probe) {
		for _, l := range fast(50, 60*time.Millisecond) {
			d, key := p.define(l), l.Kind.String()
			end := p.now() + 4*60_000
			p.eventually("time goes by", func() bool { return p.ask(d, key, take(3)).Now > end })
		}
	}},
	{name: "a key is forgotten when it is full", when: Subject.hasKeys, run: func(p *probe) {
		for i, l := range fast(50, 100*time.Millisecond) {
			d := p.defineNamed(fmt.Sprint(i), l)
			for k := range 10 {
				p.takes(d, fmt.Sprint(k), 5, 5, "it is full")
			}
			p.eventually("full keys are not kept", func() bool { return p.s.Keys(p.t, p.b, d.Name) == 0 })
			p.takes(d, "0", 50, 50, "it is full again")
		}
	}},
	{name: "a key is kept until it is full", run: func(p *probe) {
		for i, l := range fast(6, 300*time.Millisecond) {
			d := p.defineNamed(fmt.Sprint(i), l)
			first := p.takes(d, "k", 6, 6, "it is full")
			next := newer(d, func(d *backend.Definition) { d.Permits = 9 })
			// A request by a newer definition changes nothing, and shows whether a state is stored. The model reports
			// a failure if the state is missing too early.
			full := d.FullAt(&first.State)
			p.eventually("time goes by", func() bool { return p.ask(next, "k", take(0)).Now >= full })
		}
	}},
	{name: "the time of a decision is the server's", run: func(p *probe) {
		d := p.define(slowLimits(5))
		for range 20 {
			before := p.now()
			b := p.ask(d, "", take(0))
			after := p.now()
			p.check(before <= b.Now && b.Now <= after, fmt.Sprintf("the time is between %d and %d", before, after), b.Now)
		}
	}},
}
