package storetest

import (
	"fmt"
	"time"
)

// short is the TTL of a lease that expires while a case waits for it. Everything before that must be done in this time:
// see steadily.
const short = 250 * time.Millisecond

// errSlow is the value of a panic if the server was too slow for the case.
type errSlow struct{}

// steadily calls f again, with another key, if the server was too slow for it.
func (p *probe) steadily(f func(key string)) {
	for try := range 20 {
		if p.inTime(func() { f(fmt.Sprint(try)) }) {
			return
		}
	}
	p.t.Skip("the server is too slow for leases of ", short)
}

func (p *probe) inTime(f func()) (ok bool) {
	failures := len(p.failures)
	defer func() {
		switch r := recover(); r {
		case nil:
		case any(errSlow{}):
			p.failures = p.failures[:failures]
			ok = false
		default:
			panic(r)
		}
	}()
	f()
	return true
}

// before ends this try if that moment has passed.
func (p *probe) before(end time.Time) {
	if time.Now().After(end) {
		panic(errSlow{})
	}
}

var leaseCases = []testCase{
	{
		name: "a lease that is not renewed ends, and not before its time",
		run: func(p *probe) {
			d := p.define(concurrency(2))
			begin := time.Now()
			a := p.granted(leaseRequest(d, "", "a", 2, short), 2, "nothing was held")
			b := leaseRequest(d, "", "b", 2, time.Minute)
			p.eventually("the lease of a ends", func() bool { p.acquires(p.b, b); return b.OK })
			p.check(time.Since(begin) >= short-2*time.Millisecond, fmt.Sprintf("the lease ends after %v", short), time.Since(begin))
			p.check(b.InUse == 2, "2 permits are in use", b.InUse)
			p.check(b.Fence > a.Fence, fmt.Sprintf("the fence is larger than %d", a.Fence), b.Fence)
			p.ended(a, "it ran out, and another holds the permits")
			p.rejected(leaseRequest(d, "", "c", 1, time.Minute), 2, "b holds both")
			p.released(b)
		},
	},
	{
		name: "a lease that has ended and was not missed by anybody has ended all the same",
		run: func(p *probe) {
			d := p.define(concurrency(2))
			a := p.granted(leaseRequest(d, "", "a", 2, short), 2, "nothing was held")
			zero := leaseRequest(d, "", "zero", 0, time.Minute)
			p.eventually("the lease of a ends", func() bool { p.acquires(p.b, zero); return zero.OK })
			p.check(zero.InUse == 0, "nothing is in use", zero.InUse)
			p.ended(a, "it ran out")
			p.granted(leaseRequest(d, "", "b", 2, time.Minute), 2, "nothing is held")
		},
	},
	{
		name: "only the lease ends whose time has come",
		run: func(p *probe) {
			d := p.define(concurrency(3))
			p.granted(leaseRequest(d, "", "a", 1, short), 1, "nothing was held")
			b := p.granted(leaseRequest(d, "", "b", 2, time.Minute), 3, "2 were left")
			c := leaseRequest(d, "", "c", 1, time.Minute)
			p.eventually("the lease of a ends", func() bool { p.acquires(p.b, c); return c.OK })
			p.check(c.InUse == 3, "3 permits are in use", c.InUse)
			p.released(b)
			p.released(c)
		},
	},
	{
		name: "a lease that is renewed goes on",
		run: func(p *probe) {
			d := p.define(concurrency(2))
			p.steadily(func(key string) {
				end := time.Now().Add(short)
				a := p.granted(leaseRequest(d, key, "a", 1, short), 1, "nothing was held")
				p.granted(leaseRequest(d, key, "b", 1, short), 2, "1 was left")
				p.before(end)
				again := sameLease(a)
				again.TTL = time.Minute.Microseconds()
				p.renews(p.b, again)
				p.before(end)
				p.check(again.OK, "a Renew finds the lease", again.OK)
				c := leaseRequest(d, key, "c", 1, time.Minute)
				p.eventually("the lease of b ends", func() bool { p.acquires(p.b, c); return c.OK })
				p.rejected(leaseRequest(d, key, "d", 1, time.Minute), 2, "a was renewed")
				p.released(a)
			})
		},
	},
	{
		name: "a lease that is renewed for a shorter time ends sooner",
		run: func(p *probe) {
			d := p.define(concurrency(1))
			a := p.granted(leaseRequest(d, "", "a", 1, time.Hour), 1, "nothing was held")
			p.renewed(a, short)
			b := leaseRequest(d, "", "b", 1, time.Minute)
			p.eventually("the lease of a ends", func() bool { p.acquires(p.b, b); return b.OK })
		},
	},
	{
		name: "a lease that is requested again lasts from then on",
		run: func(p *probe) {
			d := p.define(concurrency(2))
			p.steadily(func(key string) {
				end := time.Now().Add(short)
				p.granted(leaseRequest(d, key, "a", 1, short), 1, "nothing was held")
				p.granted(leaseRequest(d, key, "b", 1, short), 2, "1 was left")
				p.before(end)
				a := leaseRequest(d, key, "a", 1, time.Minute)
				p.acquires(p.b, a)
				p.before(end)
				p.check(a.OK && a.InUse == 2, "a holds it already", fmt.Sprintf("%+v", *a))
				c := leaseRequest(d, key, "c", 1, time.Minute)
				p.eventually("the lease of b ends", func() bool { p.acquires(p.b, c); return c.OK })
				p.rejected(leaseRequest(d, key, "d", 1, time.Minute), 2, "a holds it for a minute")
				p.released(a)
			})
		},
	},
	{
		name: "who is rejected hears when the first lease ends",
		run: func(p *probe) {
			d := p.define(concurrency(3))
			p.granted(leaseRequest(d, "", "a", 1, time.Hour), 1, "nothing was held")
			begin := time.Now()
			b := p.granted(leaseRequest(d, "", "b", 1, time.Minute), 2, "2 were left")
			p.granted(leaseRequest(d, "", "c", 1, time.Hour), 3, "1 was left")
			for _, permits := range []int64{1, 0} {
				h := p.rejected(leaseRequest(d, "", "d", permits, time.Minute), 3, "nothing is left")
				p.check(h.NextExpiry == 0 || h.NextExpiry <= b.TTL && h.NextExpiry >= b.TTL-time.Since(begin).Microseconds()-2000,
					"the first lease ends in a minute, or it is not known", h.NextExpiry)
			}
		},
	},
}
