package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// concurrency returns the limits of a concurrency limiter.
func concurrency(permits int64) rate.Schedule {
	return rate.Schedule{Kind: rate.Concurrency, Permits: permits}
}

func leaseRequest(d *backend.Definition, key, id string, permits int64, ttl time.Duration) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: d, Key: key, ID: id, Permits: permits, TTL: ttl.Microseconds()}
}

// waiting returns a request of a caller that waits for a notice if the request is rejected.
func waiting(d *backend.Definition, key string) *backend.LeaseRequest {
	r := leaseRequest(d, key, "waits", 1, time.Minute)
	r.Waiting = true
	return r
}

// sameLease returns a request to renew or release the lease that r has acquired.
func sameLease(r *backend.LeaseRequest) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: r.Definition, Key: r.Key, ID: r.ID, Permits: r.Permits, TTL: r.TTL, Fence: r.Fence}
}

// sorted returns a copy in the order that a Backend expects.
func sorted(requests []*backend.LeaseRequest) []*backend.LeaseRequest {
	requests = slices.Clone(requests)
	slices.SortStableFunc(requests, func(a, b *backend.LeaseRequest) int {
		return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key))
	})
	return requests
}

func (p *probe) acquires(b backend.Backend, requests ...*backend.LeaseRequest) {
	p.works("Acquire", b.Acquire(p.ctx, sorted(requests)))
	for _, r := range requests {
		p.check(r.Outcome == backend.Decided, "an Acquire has an outcome", fmt.Sprintf("%+v", *r))
	}
}

func (p *probe) renews(b backend.Backend, requests ...*backend.LeaseRequest) {
	p.works("Renew", b.Renew(p.ctx, sorted(requests)))
}

func (p *probe) releases(b backend.Backend, requests ...*backend.LeaseRequest) {
	p.works("Release", b.Release(p.ctx, sorted(requests)))
}

// granted calls Acquire. It expects that r is granted, and that inUse permits are in use then.
func (p *probe) granted(r *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.acquires(p.b, r)
	p.check(r.OK, fmt.Sprintf("an Acquire of %d permits is granted: %s", r.Permits, why), fmt.Sprintf("%+v", *r))
	p.check(r.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), r.InUse)
	p.check(r.Fence > 0 || r.Permits == 0, "a lease has a fence", r.Fence)
	return r
}

// rejected calls Acquire. It expects that r is rejected while inUse permits are in use.
func (p *probe) rejected(r *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.acquires(p.b, r)
	p.check(!r.OK, fmt.Sprintf("an Acquire of %d permits is rejected: %s", r.Permits, why), fmt.Sprintf("%+v", *r))
	p.check(r.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), r.InUse)
	p.check(r.NextExpiry >= 0, "a lease does not end in the past", r.NextExpiry)
	return r
}

// ended calls Renew and Release. It expects that both find that the lease has ended.
func (p *probe) ended(r *backend.LeaseRequest, why string) {
	again := sameLease(r)
	p.renews(p.b, again)
	p.check(!again.OK, "a Renew does not find the lease: "+why, again.OK)
	again = sameLease(r)
	p.releases(p.b, again)
	p.check(!again.OK, "a Release does not find the lease: "+why, again.OK)
}

// released calls Release. It expects that the lease has not ended.
func (p *probe) released(r *backend.LeaseRequest) {
	again := sameLease(r)
	p.releases(p.b, again)
	p.check(again.OK, "a Release finds the lease", again.OK)
}

// renewed calls Renew, expects that the lease has not ended, and returns it.
func (p *probe) renewed(r *backend.LeaseRequest, ttl time.Duration) *backend.LeaseRequest {
	again := sameLease(r)
	again.TTL = ttl.Microseconds()
	p.renews(p.b, again)
	p.check(again.OK, "a Renew finds the lease", again.OK)
	return again
}
