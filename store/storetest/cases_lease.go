package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// short is the TTL of a lease that expires while a case waits for it.
const short = 250 * time.Millisecond

// grantedLater expects that r is granted as soon as another lease ends.
func (p *probe) grantedLater(r *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.eventually("a lease ends: "+why, func() bool { p.acquires(p.b, r); return r.OK })
	p.check(r.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), r.InUse)
	return r
}

// extends expects that extend gives a lease more time, while a lease that is not extended ends. If the server is so slow
// that the leases can have ended before, it tries again with another key.
func (p *probe) extends(extend func(a *backend.LeaseRequest)) {
	d := p.define(concurrency(2))
	for try := range 20 {
		key, end := fmt.Sprint(try), time.Now().Add(short)
		a, b := leaseRequest(d, key, "a", 1, short), leaseRequest(d, key, "b", 1, short)
		p.acquires(p.b, a)
		p.acquires(p.b, b)
		again := sameLease(a)
		again.TTL = time.Minute.Microseconds()
		extend(again)
		if time.Now().After(end) {
			continue
		}
		p.check(a.OK && b.OK && b.InUse == 2, "both leases are granted", fmt.Sprintf("%+v, %+v", *a, *b))
		p.check(again.OK, "the lease is found", fmt.Sprintf("%+v", *again))
		p.grantedLater(leaseRequest(d, key, "c", 1, time.Minute), 2, "b was not extended")
		p.rejected(leaseRequest(d, key, "d", 1, time.Minute), 2, "a was extended")
		p.released(a)
		return
	}
	p.t.Skip("the server is too slow for leases of ", short)
}

var leaseCases = []testCase{
	{name: "a lease that is not renewed ends, and not before its time", run: func(p *probe) {
		d := p.define(concurrency(2))
		begin := time.Now()
		a := p.granted(leaseRequest(d, "", "a", 2, short), 2, "nothing was held")
		b := p.grantedLater(leaseRequest(d, "", "b", 2, time.Minute), 2, "a expires")
		p.check(time.Since(begin) >= short-2*time.Millisecond, fmt.Sprintf("the lease ends after %v", short), time.Since(begin))
		p.check(b.Fence > a.Fence, fmt.Sprintf("the fence is larger than %d", a.Fence), b.Fence)
		p.ended(a, "it has expired, and another lease has the permits")
		p.rejected(leaseRequest(d, "", "c", 1, time.Minute), 2, "b holds both")
		p.released(b)
	}},
	{name: "a lease has ended as soon as an Acquire of no permits finds it expired", run: func(p *probe) {
		d := p.define(concurrency(2))
		a := p.granted(leaseRequest(d, "", "a", 2, short), 2, "nothing was held")
		p.grantedLater(leaseRequest(d, "", "zero", 0, time.Minute), 0, "a expires")
		p.ended(a, "it has expired")
		p.granted(leaseRequest(d, "", "b", 2, time.Minute), 2, "nothing is held")
	}},
	{name: "a lease that expires does not end other leases", run: func(p *probe) {
		d := p.define(concurrency(3))
		p.granted(leaseRequest(d, "", "a", 1, short), 1, "nothing was held")
		b := leaseRequest(d, "", "b", 2, time.Minute)
		p.acquires(p.b, b)
		p.check(b.OK, "2 were left", fmt.Sprintf("%+v", *b)) // a slow server has ended a's lease by now
		c := p.grantedLater(leaseRequest(d, "", "c", 1, time.Minute), 3, "a expires")
		p.released(b)
		p.released(c)
	}},
	{name: "a lease that is renewed goes on", run: func(p *probe) {
		p.extends(func(a *backend.LeaseRequest) { p.renews(p.b, a) })
	}},
	{name: "a lease that is renewed for a shorter time ends sooner", run: func(p *probe) {
		d := p.define(concurrency(1))
		a := p.granted(leaseRequest(d, "", "a", 1, time.Hour), 1, "nothing was held")
		p.renewed(a, short)
		p.grantedLater(leaseRequest(d, "", "b", 1, time.Minute), 1, "a expires")
	}},
	{name: "a lease that is acquired again lasts from then on", run: func(p *probe) {
		p.extends(func(a *backend.LeaseRequest) { p.acquires(p.b, a) })
	}},
	{name: "a rejection says when the first lease ends", run: func(p *probe) {
		d := p.define(concurrency(3))
		p.granted(leaseRequest(d, "", "a", 1, time.Hour), 1, "nothing was held")
		begin := time.Now()
		b := p.granted(leaseRequest(d, "", "b", 1, time.Minute), 2, "2 were left")
		p.granted(leaseRequest(d, "", "c", 1, time.Hour), 3, "1 was left")
		for _, permits := range []int64{1, 0} {
			r := p.rejected(leaseRequest(d, "", "d", permits, time.Minute), 3, "nothing is left")
			p.check(r.NextExpiry == 0 || r.NextExpiry <= b.TTL && r.NextExpiry >= b.TTL-time.Since(begin).Microseconds()-2000,
				"the first lease ends in a minute, or it is not known", r.NextExpiry)
		}
	}},
}
