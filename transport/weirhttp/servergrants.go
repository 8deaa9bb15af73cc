package weirhttp

import (
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A grant is what a policy has granted to a call.
type grant struct {
	policy     *policy
	lease      limiter.Lease
	key        string        // what Policy.Key returned, if the policy is Partitioned
	since      time.Duration // when it was granted, as of clock.Now, if the call is measured; or extra
	begun      any           // what BeginMeasurement of a [pipeline.LeaseMeasurer] returned
	correction *correction   // not nil while Charge corrects the lease
}

// extra is the since of permits that [Charge] took in addition: they are not another lease of the request.
const extra time.Duration = -1

// hold adds a grant, which end gives back. It returns false if the call is over.
func (c *call) hold(g grant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.held = append(c.held, g)
	}
	return !c.over
}

// grants returns a copy of what the call holds.
func (c *call) grants() []grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.held)
}

// grantOf returns what the policy has granted, if anything.
func (c *call) grantOf(p *policy) (g grant, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if c.held[i].policy == p {
			return c.held[i], true
		}
	}
	return grant{}, false
}

// end releases everything when the handler has returned.
func (c *call) end() {
	c.mu.Lock()
	held := uncorrected(c.held, false)
	c.held, c.over = nil, true
	c.mu.Unlock()
	c.release(held)
}

// cut removes the grants after the first keep ones from the call and returns them. refund is for the grants that Charge
// corrects at the moment.
func (c *call) cut(keep int, refund bool) []grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep >= len(c.held) {
		return nil
	}
	removed := uncorrected(slices.Clone(c.held[keep:]), refund)
	c.held = c.held[:keep]
	return removed
}

// uncorrected returns those of the grants that Charge does not correct at the moment. A correction gives its lease back
// itself when it is done, with Refund or with Release. It can run a function of the program, so the call does not wait
// for it. The caller holds the call's mu.
func uncorrected(grants []grant, refund bool) []grant {
	kept := grants[:0]
	for i := range grants {
		if x := grants[i].correction; x != nil {
			x.removed, x.refund = true, refund
			continue
		}
		kept = append(kept, grants[i])
	}
	return kept
}

// release releases the grants, the last one first. If a lease panics, the others are still released.
func (c *call) release(grants []grant) {
	if len(grants) == 0 {
		return
	}
	last := len(grants) - 1
	if last > 0 {
		defer c.release(grants[:last])
	}
	g := &grants[last]
	defer c.measureLease(g)
	g.lease.Release()
}

// refund is release with Refund: as if the permits had never been taken.
func (c *call) refund(grants []grant) {
	if len(grants) == 0 {
		return
	}
	last := len(grants) - 1
	defer c.refund(grants[:last])
	g := &grants[last]
	defer c.measureLease(g)
	g.lease.Refund()
}
