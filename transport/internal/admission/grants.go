package admission

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A grant is what a policy has granted to a call.
type grant[R any] struct {
	policy *Policy[R]
	lease  limiter.Lease
	key    string                                // what the Key of the policy's Limit returned
	since  time.Duration                         // clock.Now when it was granted, if the call is measured; or topUpMark
	ended  func(context.Context, pipeline.Event) // what OnMeasurement of the Listener returned, or nil
	use    use
}

// A use says whether the handler has used a grant, as far as is known before the handler returns.
type use uint8

const (
	open   use = iota // the handler runs, or may run
	unused            // the attempt at the handler was shed: the grant will be refunded, unless another attempt follows
	spent             // an attempt has ended that was not shed: the grant will be released, whatever follows
)

// topUpMark is the since of a grant that [Charge] took in addition to the lease of the policy. [Leases] and
// measurements leave such a grant out.
const topUpMark time.Duration = -1

// isTopUp reports whether [Charge] took the grant in addition to the lease of the policy.
func (g *grant[R]) isTopUp() bool { return g.since == topUpMark }

// hold adds a grant, which End gives back. It returns false if the call is over.
func (c *Call[R]) hold(g grant[R]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.held = append(c.held, g)
	}
	return !c.over
}

// Held returns how many grants the call holds.
func (c *Call[R]) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}

// grants returns a copy of what the call holds.
func (c *Call[R]) grants() []grant[R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.held)
}

// grantOf returns what the policy has granted, if anything.
func (c *Call[R]) grantOf(p *Policy[R]) (g grant[R], ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if c.held[i].policy == p {
			return c.held[i], true
		}
	}
	return grant[R]{}, false
}

// End releases everything when the handler has returned.
func (c *Call[R]) End() {
	c.mu.Lock()
	held := c.held
	c.held, c.over = nil, true
	c.mu.Unlock()
	c.giveBack(held, false)
}

// Attempt begins an attempt of a pipeline at the later policies and the handler. An earlier attempt has spent all grants except
// the first ones, whose number is keep.
func (c *Call[R]) Attempt(keep int) {
	c.keep = keep
	c.giveBackFrom(keep, false)
}

// Shed makes End refund what the call holds: nothing was called. The permits are held until then, because the handler can
// answer by itself, and a pipeline can make another attempt; see Repeat.
func (c *Call[R]) Shed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.use == open {
			g.use = unused
		}
	}
}

// Repeat prepares what the call holds for another attempt. What the last attempt has not shed, it has spent.
func (c *Call[R]) Repeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.use == unused {
			g.use = open
		} else {
			g.use = spent
		}
	}
}

// TurnAway gives back everything, because a policy does not admit the call. If that policy was asked in a pipeline, what is
// held for all attempts is given back by End.
func (c *Call[R]) TurnAway() {
	c.giveBackFrom(c.keep, true)
	c.Shed()
}

// giveBackFrom removes all grants from the call except the first ones, whose number is keep, and gives the removed
// grants back; see giveBack.
func (c *Call[R]) giveBackFrom(keep int, refund bool) {
	c.mu.Lock()
	var removed []grant[R]
	if keep < len(c.held) {
		removed = slices.Clone(c.held[keep:])
		c.held = c.held[:keep]
	}
	c.mu.Unlock()
	c.giveBack(removed, refund)
}

// GiveBackOf removes what p has granted from the call, and gives it back; see giveBack.
func (c *Call[R]) GiveBackOf(p *Policy[R], refund bool) {
	var array [1]grant[R] // so that a message of a stream allocates nothing
	removed := array[:0]
	c.mu.Lock()
	c.held = slices.DeleteFunc(c.held, func(g grant[R]) bool {
		if g.policy == p {
			removed = append(removed, g)
		}
		return g.policy == p
	})
	c.mu.Unlock()
	c.giveBack(removed, refund)
}

// giveBack releases the grants or, with refund or if they are unused, gives them back as if they had never been taken. The
// last one comes first. If a lease panics, the others are still given back.
func (c *Call[R]) giveBack(grants []grant[R], refund bool) {
	if len(grants) == 0 {
		return
	}
	last := len(grants) - 1
	if last > 0 {
		defer c.giveBack(grants[:last], refund)
	}
	g := &grants[last]
	defer c.measureLease(g)
	if refund && g.use != spent || g.use == unused {
		g.lease.Refund()
		return
	}
	g.lease.Release()
}

// measureRequest reports how long the policy took to answer. It is called when the call holds the lease, so that the
// lease is given back if the Listener panics.
func (c *Call[R]) measureRequest(ctx context.Context, p *Policy[R], waited, answered time.Duration, lease limiter.Lease, err error) {
	e := pipeline.Event{Name: ratelimit.MeasureRequest, Source: p.Source, Duration: waited, Err: err}
	if err == nil && !lease.Acquired() {
		e.Err = p.rejectedError(lease)
	}
	ended := c.limits.hooks.OnMeasurement(ctx, e)
	if e.Err != nil || ended == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.policy == p && g.since == answered {
			g.ended = ended
		}
	}
}

// measureLease reports how long the permits of g were held.
func (c *Call[R]) measureLease(g *grant[R]) {
	if g.ended != nil {
		g.ended(c.Context, pipeline.Event{Name: ratelimit.MeasureLease, Source: g.policy.Source, Duration: clock.Now() - g.since})
	}
}
