package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// concurrency are limits of which so many permits can be held at once.
func concurrency(permits int64) backend.Limits {
	return backend.Limits{Kind: backend.KindConcurrency, Permits: permits}
}

func hold(d *backend.Definition, key, id string, permits int64, ttl time.Duration) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: d, Key: key, ID: id, Permits: permits, TTL: ttl.Microseconds()}
}

// waiting is a hold by somebody who waits if it is rejected.
func waiting(d *backend.Definition, key string) *backend.LeaseRequest {
	h := hold(d, key, "waits", 1, time.Minute)
	h.Waiting = true
	return h
}

// late is the same lease again, for Renew and Release.
func late(h *backend.LeaseRequest) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: h.Definition, Key: h.Key, ID: h.ID, Permits: h.Permits, TTL: h.TTL, Fence: h.Fence}
}

func sortHolds(holds []*backend.LeaseRequest) {
	slices.SortStableFunc(holds, func(a, b *backend.LeaseRequest) int {
		return cmp.Or(cmp.Compare(a.Definition.Name, b.Definition.Name), cmp.Compare(a.Key, b.Key))
	})
}

// sorted is a sorted copy, for the order in which the case has them is the case's.
func sorted(holds []*backend.LeaseRequest) []*backend.LeaseRequest {
	holds = slices.Clone(holds)
	sortHolds(holds)
	return holds
}

func (p *probe) holds(b backend.Backend, holds ...*backend.LeaseRequest) {
	p.works("Acquire", b.Acquire(p.ctx, sorted(holds)))
	for _, h := range holds {
		p.check(h.Outcome == backend.Decided, "a Hold has an outcome", fmt.Sprintf("%+v", *h))
	}
}

func (p *probe) renews(b backend.Backend, holds ...*backend.LeaseRequest) {
	p.works("Renew", b.Renew(p.ctx, sorted(holds)))
}

func (p *probe) releases(b backend.Backend, holds ...*backend.LeaseRequest) {
	p.works("Release", b.Release(p.ctx, sorted(holds)))
}

// granted expects that h is, and how many permits are in use then.
func (p *probe) granted(h *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.holds(p.b, h)
	p.check(h.OK, fmt.Sprintf("a Hold of %d permits is granted: %s", h.Permits, why), fmt.Sprintf("%+v", *h))
	p.check(h.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), h.InUse)
	p.check(h.Fence > 0 || h.Permits == 0, "a lease has a fence", h.Fence)
	return h
}

// rejected expects that h is, and how many permits are in use.
func (p *probe) rejected(h *backend.LeaseRequest, inUse int64, why string) *backend.LeaseRequest {
	p.holds(p.b, h)
	p.check(!h.OK, fmt.Sprintf("a Hold of %d permits is rejected: %s", h.Permits, why), fmt.Sprintf("%+v", *h))
	p.check(h.InUse == inUse, fmt.Sprintf("%d permits are in use: %s", inUse, why), h.InUse)
	p.check(h.NextExpiry >= 0, "a lease does not end in the past", h.NextExpiry)
	return h
}

// ended expects that a lease is not there any more, for whoever has it.
func (p *probe) ended(h *backend.LeaseRequest, why string) {
	again := late(h)
	p.renews(p.b, again)
	p.check(!again.OK, "a Renew does not find the lease: "+why, again.OK)
	again = late(h)
	p.releases(p.b, again)
	p.check(!again.OK, "a Release does not find the lease: "+why, again.OK)
}

// released releases a lease that is there.
func (p *probe) released(h *backend.LeaseRequest) {
	again := late(h)
	p.releases(p.b, again)
	p.check(again.OK, "a Release finds the lease", again.OK)
}

// renewed renews a lease that is there, and returns it.
func (p *probe) renewed(h *backend.LeaseRequest, ttl time.Duration) *backend.LeaseRequest {
	again := late(h)
	again.TTL = ttl.Microseconds()
	p.renews(p.b, again)
	p.check(again.OK, "a Renew finds the lease", again.OK)
	return again
}
