package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

var acquireCases = []testCase{
	{name: "leases never hold more than the limit", run: func(p *probe) {
		d := p.define(concurrency(3))
		a := p.granted(leaseRequest(d, "", "a", 2, time.Minute), 2, "nothing was held")
		p.rejected(leaseRequest(d, "", "b", 2, time.Minute), 2, "1 is left")
		p.rejected(leaseRequest(d, "", "c", 4, time.Minute), 2, "4 are above the limit")
		p.granted(leaseRequest(d, "", "d", 1, time.Minute), 3, "1 is left")
		p.rejected(leaseRequest(d, "", "e", 1, time.Minute), 3, "nothing is left")
		p.released(a)
		p.granted(leaseRequest(d, "", "f", 2, time.Minute), 3, "2 were released")
	}},
	{name: "an Acquire of no permits asks whether one is free, and leases nothing", run: func(p *probe) {
		d := p.define(concurrency(2))
		p.granted(leaseRequest(d, "", "zero", 0, time.Minute), 0, "nothing is held")
		a := p.granted(leaseRequest(d, "", "a", 1, time.Minute), 1, "nothing was held")
		p.granted(leaseRequest(d, "", "zero", 0, time.Minute), 1, "1 is left")
		b := p.granted(leaseRequest(d, "", "b", 1, time.Minute), 2, "1 was left")
		p.rejected(leaseRequest(d, "", "zero", 0, time.Minute), 2, "nothing is left")
		p.released(a)
		p.released(b)
		p.granted(leaseRequest(d, "", "zero", 0, time.Minute), 0, "nothing is held any more")
	}},
	{name: "some of the requests of one call are granted", run: func(p *probe) {
		d := p.define(concurrency(2))
		var requests []*backend.LeaseRequest
		for i := range 5 {
			requests = append(requests, leaseRequest(d, "k", fmt.Sprint(i), 1, time.Minute), leaseRequest(d, "l", fmt.Sprint(i), 1, time.Minute))
		}
		p.acquires(p.b, requests...)
		granted, fences := map[string]int{}, map[string]int64{}
		for _, r := range sorted(requests) {
			p.check(r.InUse <= 2, "no more than 2 are in use", r.InUse)
			if r.OK {
				granted[r.Key]++
				p.check(r.Fence != fences[r.Key], "no two leases of a key have the same fence", r.Fence)
				fences[r.Key] = r.Fence
			}
		}
		p.check(granted["k"] == 2 && granted["l"] == 2, "2 of each key are granted", granted)
	}},
	{name: "many leases are renewed and released in one call", run: func(p *probe) {
		d := p.define(concurrency(3))
		var requests, again []*backend.LeaseRequest
		for i := range 60 {
			requests = append(requests, leaseRequest(d, fmt.Sprint(i%20), fmt.Sprint(i), 1, time.Minute))
		}
		p.acquires(p.b, requests...)
		for _, r := range requests {
			p.check(r.OK, "3 of each key are granted", fmt.Sprintf("%+v", *r))
			again = append(again, sameLease(r))
		}
		p.renews(p.b, again...)
		p.releases(p.b, again...)
		for _, r := range again {
			p.check(r.OK, "each of the leases is found", fmt.Sprintf("%+v", *r))
		}
		p.releases(p.b, again...)
		for _, r := range again {
			p.check(!r.OK, "each of the leases has been released", fmt.Sprintf("%+v", *r))
		}
		p.granted(leaseRequest(d, "7", "new", 3, time.Minute), 3, "all were released")
	}},
	{name: "leases of one key do not count for another", run: func(p *probe) {
		d := p.define(concurrency(1))
		other := p.defineNamed("-other", concurrency(1))
		a := p.granted(leaseRequest(d, "k", "a", 1, time.Minute), 1, "nothing was held")
		p.granted(leaseRequest(d, "l", "a", 1, time.Minute), 1, "nothing of the other key was held")
		p.granted(leaseRequest(other, "k", "a", 1, time.Minute), 1, "nothing of the other limiter was held")
		p.released(a)
		p.rejected(leaseRequest(d, "l", "b", 1, time.Minute), 1, "it was another key that was released")
		p.rejected(leaseRequest(other, "k", "b", 1, time.Minute), 1, "it was another limiter that was released")
	}},
	{name: "the fences of a key grow", run: func(p *probe) {
		d, last := p.define(concurrency(2)), int64(0)
		other := p.another()
		for i := range 20 {
			r := leaseRequest(d, "k", fmt.Sprint(i), 1, time.Minute)
			if i%5 == 4 {
				r.TTL = 1 // it expires at once
			}
			p.acquires([]backend.Backend{p.b, other}[i%2], r)
			p.check(r.OK, "an Acquire is granted: all others were released", fmt.Sprintf("%+v", *r))
			p.check(r.Fence > last, fmt.Sprintf("the fence is larger than %d", last), r.Fence)
			last = r.Fence
			if i%3 > 0 {
				p.releases(p.b, sameLease(r))
			} else {
				p.releases(other, sameLease(r))
			}
		}
	}},
	{name: "a repeated Release has no effect", run: func(p *probe) {
		d := p.define(concurrency(2))
		a := p.granted(leaseRequest(d, "", "a", 1, time.Minute), 1, "nothing was held")
		p.granted(leaseRequest(d, "", "b", 1, time.Minute), 2, "1 was left")
		p.released(a)
		p.ended(a, "it was released")
		p.granted(leaseRequest(d, "", "c", 1, time.Minute), 2, "a was released, b is held")
		p.ended(a, "it was released long ago")
		p.rejected(leaseRequest(d, "", "d", 1, time.Minute), 2, "b and c are held")
	}},
	{name: "a lease whose fence is not known is renewed and released by its ID", run: func(p *probe) {
		d := p.define(concurrency(2))
		a := p.granted(leaseRequest(d, "", "a", 2, time.Minute), 2, "nothing was held")
		unknown := sameLease(a)
		unknown.Fence = 0
		p.renewed(unknown, time.Minute)
		p.renewed(a, time.Minute) // it keeps its fence
		p.released(unknown)
		p.granted(leaseRequest(d, "", "b", 2, time.Minute), 2, "it was released")
		p.ended(a, "it was released")
	}},
	{name: "a lease that was never granted does not exist", run: func(p *probe) {
		d := p.define(concurrency(2))
		p.ended(leaseRequest(d, "", "a", 1, time.Minute), "there are no leases")
		p.granted(leaseRequest(d, "", "b", 2, time.Minute), 2, "nothing was held")
		a := p.rejected(leaseRequest(d, "", "a", 1, time.Minute), 2, "all is held")
		p.ended(a, "it was rejected")
		p.rejected(leaseRequest(d, "", "c", 1, time.Minute), 2, "all is held")
	}},
	{name: "a lease that is acquired again because the answer was lost is one lease", run: func(p *probe) {
		d := p.define(concurrency(3))
		a := p.granted(leaseRequest(d, "", "a", 2, time.Minute), 2, "nothing was held")
		b := p.granted(leaseRequest(d, "", "a", 2, time.Minute), 2, "it is the same lease")
		p.check(b.Fence >= a.Fence, "the fence does not fall", b.Fence)
		p.granted(leaseRequest(d, "", "b", 1, time.Minute), 3, "1 was left")
		b = p.granted(leaseRequest(d, "", "a", 2, time.Minute), 3, "it is the same lease")
		p.released(b)
		p.ended(b, "it was released")
		p.granted(leaseRequest(d, "", "c", 2, time.Minute), 3, "2 were released")
	}},
	{name: "what is held counts under a lowered limit", run: func(p *probe) {
		d := p.define(concurrency(3))
		var held []*backend.LeaseRequest
		for i := range int64(3) {
			held = append(held, p.granted(leaseRequest(d, "", fmt.Sprint(i), 1, time.Minute), i+1, "it fits"))
		}
		less := newer(d, func(d *backend.Definition) { d.Permits = 1 })
		for i, r := range held {
			p.rejected(leaseRequest(less, "", "new", 1, time.Minute), int64(3-i), "at most 1 is held under the new limit")
			p.rejected(leaseRequest(less, "", "zero", 0, time.Minute), int64(3-i), "at most 1 is held under the new limit")
			p.released(r)
		}
		p.granted(leaseRequest(less, "", "new", 1, time.Minute), 1, "nothing is held any more")
		p.rejected(leaseRequest(less, "", "another", 1, time.Minute), 1, "at most 1 is held under the new limit")
		more := newer(less, func(d *backend.Definition) { d.Permits = 2 })
		p.granted(leaseRequest(more, "", "another", 1, time.Minute), 2, "the limit was raised")
	}},
	{name: "nothing is leased by an older definition than the newest that was used", run: func(p *probe) {
		d := p.define(concurrency(3))
		less := newer(d, func(d *backend.Definition) { d.Permits = 1 })
		a := p.granted(leaseRequest(less, "", "a", 1, time.Minute), 1, "nothing was held")
		r := leaseRequest(d, "", "b", 1, time.Minute)
		p.works("Acquire", p.b.Acquire(p.ctx, []*backend.LeaseRequest{r}))
		p.check(r.Outcome == backend.OutdatedDefinition && !r.OK && r.Version == less.Version, "the definition is outdated", fmt.Sprintf("%+v", *r))
		p.rejected(leaseRequest(less, "", "b", 1, time.Minute), 1, "a is held, and nothing else")
		p.released(a)
	}},
	{name: "a lease is renewed and released by any definition", run: func(p *probe) {
		d := p.define(concurrency(3))
		a := p.granted(leaseRequest(d, "", "a", 1, time.Minute), 1, "nothing was held")
		p.granted(leaseRequest(newer(d, nil), "", "b", 1, time.Minute), 2, "2 were left")
		p.released(p.renewed(a, time.Hour))
		p.granted(leaseRequest(newer(d, nil), "", "c", 2, time.Minute), 3, "a was released")
	}},
	{name: "an Acquire of less than 0 permits is one of none, and fails no other", run: func(p *probe) {
		d := p.define(concurrency(2))
		none, one := leaseRequest(d, "k", "none", -1, time.Minute), leaseRequest(d, "l", "one", 1, time.Minute)
		p.acquires(p.b, none, one)
		p.check(none.OK && none.InUse == 0, "it asks whether one is free", fmt.Sprintf("%+v", *none))
		p.check(one.OK && one.InUse == 1, "the other key's is granted", fmt.Sprintf("%+v", *one))
		for _, ask := range []func(backend.Backend, ...*backend.LeaseRequest){p.renews, p.releases} {
			never, again := sameLease(none), sameLease(one)
			again.Permits = -1
			ask(p.b, never, again)
			p.check(never.Outcome == backend.Decided && !never.OK, "nothing was leased", fmt.Sprintf("%+v", *never))
			p.check(again.Outcome == backend.Decided && again.OK, "the other lease is found", fmt.Sprintf("%+v", *again))
		}
		p.granted(leaseRequest(d, "k", "all", 2, time.Minute), 2, "nothing was held")
		p.granted(leaseRequest(d, "l", "all", 2, time.Minute), 2, "what was held was released")
	}},
	{name: "large numbers of permits are leased exactly", run: func(p *probe) {
		d := p.define(concurrency(backend.MaxPermits))
		a := p.granted(leaseRequest(d, "", "a", backend.MaxPermits-1, time.Hour), backend.MaxPermits-1, "nothing was held")
		p.rejected(leaseRequest(d, "", "b", 2, time.Hour), backend.MaxPermits-1, "1 is left")
		p.granted(leaseRequest(d, "", "b", 1, time.Hour), backend.MaxPermits, "1 is left")
		p.released(a)
		p.granted(leaseRequest(d, "", "c", backend.MaxPermits-1, time.Hour), backend.MaxPermits, "they were released")
	}},
}
