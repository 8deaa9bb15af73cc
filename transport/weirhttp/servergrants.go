package weirhttp

import (
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A grant is what a policy has granted to a call.
type grant struct {
	policy      *preparedPolicy
	lease       limiter.Lease
	key         string        // what Policy.Key returned, if the policy is Partitioned
	since       time.Duration // when it was granted, as of clock.Now, if the call is measured; or extra
	measurement any           // what BeginMeasurement of a [pipeline.LeaseMeasurer] returned
	correction  *correction   // not nil while Charge corrects the lease
}

// extra marks a grant by its since: [Charge] took these permits in addition to the lease of the policy. They are not
// another lease for [Leases] and for measurements.
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
func (c *call) grantOf(p *preparedPolicy) (g grant, ok bool) {
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
	c.giveBack(held, false)
}

// giveBackFrom takes the grants after the first keep ones from the call and gives them back; see giveBack.
func (c *call) giveBackFrom(keep int, refund bool) {
	c.mu.Lock()
	var removed []grant
	if keep < len(c.held) {
		removed = uncorrected(slices.Clone(c.held[keep:]), refund)
		c.held = c.held[:keep]
	}
	c.mu.Unlock()
	c.giveBack(removed, refund)
}

// uncorrected returns the grants that Charge is not correcting at the moment. It tells the other corrections to give
// their leases back when they are done, with Refund if refund is true. The call does not wait for them, because a
// correction can run a function of the program. The caller holds the call's mu.
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

// giveBack releases the grants or, with refund, gives them back as if they had never been taken. The last one comes
// first. If a lease panics, the others are still given back.
func (c *call) giveBack(grants []grant, refund bool) {
	if len(grants) == 0 {
		return
	}
	last := len(grants) - 1
	if last > 0 {
		defer c.giveBack(grants[:last], refund)
	}
	g := &grants[last]
	defer c.measureLease(g)
	if refund {
		g.lease.Refund()
		return
	}
	g.lease.Release()
}
