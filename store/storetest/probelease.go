package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// concurrency returns limits with so many permits.
func concurrency(permits int64) backend.Limits {
	return backend.Limits{Kind: backend.KindConcurrency, Permits: permits}
}

func leaseRequest(d *backend.Definition, key, id string, permits int64, ttl time.Duration) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: d, Key: key, ID: id, Permits: permits, TTL: ttl.Microseconds()}
}

// waiting is a request of a caller that waits if it is rejected.
func waiting(d *backend.Definition, key string) *backend.LeaseRequest {
	h := leaseRequest(d, key, "waits", 1, time.Minute)
	h.Waiting = true
	return h
}

// sameLease is the same lease again, for Renew and Release.
func sameLease(h *backend.LeaseRequest) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: h.Definition, Key: h.Key, ID: h.ID, Permits: h.Permits, TTL: h.TTL, Fence: h.Fence}
}

func sortRequests(requests []*backend.LeaseRequest) {
	slices.SortStableFunc(requests, func(a, b *backend.LeaseRequest) int {
		return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key))
	})
}

// sorted returns a sorted copy.
func sorted(requests []*backend.LeaseRequest) []*backend.LeaseRequest {
	requests = slices.Clone(requests)
	sortRequests(requests)
	return requests
}

func (p *probe) acquires(b backend.Backend, requests ...*backend.LeaseRequest) {
	p.works("Acquire", b.Acquire(p.ctx, sorted(requests)))
	for _, h := range requests {
		p.check(h.Outcome == backend.Decided, "an Acquire has an outcome", fmt.Sprintf("%+v", *h))
	}
}

func (p *probe) renews(b backend.Backend, requests ...*backend.LeaseRequest) {
	p.works("Renew", b.Renew(p.ctx, sorted(requests)))
}

func (p *probe) releases(b backend.Backend, requests ...*backend.LeaseRequest) {
	p.works("Release", b.Release(p.ctx, sorted(requests)))
}

// granted expects that h is granted, and that inUse permits are in use then.
func (p *probe) granted(h *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.acquires(p.b, h)
	p.check(h.OK, fmt.Sprintf("an Acquire of %d permits is granted: %s", h.Permits, why), fmt.Sprintf("%+v", *h))
	p.check(h.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), h.InUse)
	p.check(h.Fence > 0 || h.Permits == 0, "a lease has a fence", h.Fence)
	return h
}

// rejected expects that h is rejected while inUse permits are in use.
func (p *probe) rejected(h *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.acquires(p.b, h)
	p.check(!h.OK, fmt.Sprintf("an Acquire of %d permits is rejected: %s", h.Permits, why), fmt.Sprintf("%+v", *h))
	p.check(h.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), h.InUse)
	p.check(h.NextExpiry >= 0, "a lease does not end in the past", h.NextExpiry)
	return h
}

// ended expects that a lease has ended.
func (p *probe) ended(h *backend.LeaseRequest, why string) {
	again := sameLease(h)
	p.renews(p.b, again)
	p.check(!again.OK, "a Renew does not find the lease: "+why, again.OK)
	again = sameLease(h)
	p.releases(p.b, again)
	p.check(!again.OK, "a Release does not find the lease: "+why, again.OK)
}

// released releases a lease that has not ended.
func (p *probe) released(h *backend.LeaseRequest) {
	again := sameLease(h)
	p.releases(p.b, again)
	p.check(again.OK, "a Release finds the lease", again.OK)
}

// renewed renews a lease that has not ended, and returns it.
func (p *probe) renewed(h *backend.LeaseRequest, ttl time.Duration) *backend.LeaseRequest {
	again := sameLease(h)
	again.TTL = ttl.Microseconds()
	p.renews(p.b, again)
	p.check(again.OK, "a Renew finds the lease", again.OK)
	return again
}
