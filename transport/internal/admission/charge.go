package admission

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/weir-go/weir/limiter"
)

// Charge corrects what the call has cost by n permits. It applies to the named policies or, without names, to all that
// are Metered. charged is how many permits the call costs more than before. The transports document it for handlers.
func (t *Transport[R]) Charge(ctx context.Context, n int, policies ...string) (charged int, err error) {
	matched := false
	for c := CallOf[R](ctx); c != nil; c = c.outer() {
		for _, p := range c.chargeable(policies) {
			change, policyErr := c.charge(p, n)
			if !matched || abs(change) < abs(charged) {
				charged = change
			}
			matched = true
			err = errors.Join(err, policyErr)
		}
	}
	if !matched {
		return 0, t.ErrNotCharged
	}
	return charged, err
}

func abs(n int) int { return max(n, -n) }

// chargeable returns the policies that have granted something and are called names; without names, the Metered ones.
func (c *Call[R]) chargeable(names []string) []*Policy[R] {
	var all []*Policy[R]
	for _, g := range c.grants() {
		p := g.policy
		if g.isTopUp() || len(names) == 0 && !p.Metered || len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		all = append(all, p)
	}
	return all
}

// charge corrects what one policy has granted. It runs functions of the limiter without holding c.mu: a limiter of the
// program may call LeaseFrom, or Charge again, and would deadlock.
func (c *Call[R]) charge(p *Policy[R], n int) (charged int, err error) {
	x, added := c.beginCharge(p, n)
	if added != 0 {
		return added, nil // the correction under way applies it
	}
	ok, postponed := false, 0
	if x != nil {
		charged, postponed, ok = x.correct(c)
	}
	if !ok {
		charged, err = c.chargeSeparately(p, n)
	}
	if postponed != 0 {
		_, _ = c.charge(p, postponed)
	}
	return charged, err
}

// chargeSeparately takes n more permits as leases of their own, or refunds whole leases, if the limiter cannot adjust
// the lease of the request.
func (c *Call[R]) chargeSeparately(p *Policy[R], n int) (int, error) {
	if n < 0 {
		back, err := c.refundUpTo(p, -n)
		return -back, err
	}
	return c.topUp(p, n)
}

// A correction is a change of a lease that [Charge] has begun and the limiter has not answered yet.
type correction[R any] struct {
	grant  grant[R]
	target int // how many permits the lease is to have, as the limiter is asked

	// Under the call's mu:
	wanted  int  // target, plus what other calls of Charge have added meanwhile
	removed bool // the call no longer has the grant: the correction gives the lease back
	refund  bool // the correction gives the lease back by Refund, not by Release
}

// beginCharge begins a correction of the policy's grant by n and returns it. If a correction of the grant is already
// under way, beginCharge adds n to that correction instead, and returns the change in its wanted permits as added. It
// returns nil and 0 if the call has no such grant.
func (c *Call[R]) beginCharge(p *Policy[R], n int) (x *correction[R], added int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, 0
	}
	for i := range c.held {
		g := &c.held[i]
		if g.policy != p || g.isTopUp() || !g.lease.Acquired() {
			continue
		}
		if x = g.correction; x != nil {
			before := x.wanted
			x.wanted = addPermits(before, n)
			return nil, x.wanted - before
		}
		want := addPermits(g.lease.Permits(), n)
		x = &correction[R]{grant: *g, target: want, wanted: want}
		g.correction = x
		return x, 0
	}
	return nil, 0
}

// addPermits returns before + n, at least 0 and at most what an int can hold.
func addPermits(before, n int) int { return max(before+min(n, math.MaxInt-before), 0) }

// correct adjusts the lease. ok is false if the limiter cannot. postponed is what other calls of Charge have added in
// the meantime; the caller charges it next.
func (x *correction[R]) correct(c *Call[R]) (charged, postponed int, ok bool) {
	lease := x.grant.lease
	defer func() { postponed = x.end(c, lease) }() // deferred in case the limiter panics
	adjusted, ok := lease.Adjust(x.target)
	if ok {
		charged = adjusted.Permits() - lease.Permits()
		lease = adjusted
	}
	return charged, 0, ok
}

// end stores the lease in the call's grant. If the call no longer has the grant, end gives the lease back to the
// limiter.
func (x *correction[R]) end(c *Call[R], lease limiter.Lease) (postponed int) {
	c.mu.Lock()
	for i := range c.held {
		if g := &c.held[i]; g.correction == x {
			g.lease, g.correction = lease, nil
		}
	}
	postponed, x.grant.lease = x.wanted-x.target, lease
	removed, refund := x.removed, x.refund
	c.mu.Unlock()
	if removed {
		c.giveBack([]grant[R]{x.grant}, refund)
	}
	return postponed
}

// topUp takes n more permits, or as many as the limiter has. How many the limiter has is not known, and other requests
// take permits at the same time, so topUp asks for half as many after each rejection.
func (c *Call[R]) topUp(p *Policy[R], n int) (taken int, err error) {
	ctx := context.WithoutCancel(c)
	granted, ok := c.grantOf(p)
	if !ok {
		return 0, c.limits.transport.ErrNotCharged
	}
	for ask := n; ask > 0; ask = min(ask, n-taken) {
		lease, err := p.ask(ctx, c.Request, granted.key, ask, false)
		if err != nil {
			lease.Release() // a limiter of the program may have granted permits and returned an error
			if !errors.Is(err, limiter.ErrPermitCount) {
				return taken, err
			}
			lease = limiter.Lease{}
		}
		if !lease.Acquired() {
			ask /= 2
			continue
		}
		if !c.hold(grant[R]{policy: p, lease: lease, since: topUpMark}) {
			lease.Refund()
			return taken, c.limits.transport.ErrNotCharged
		}
		taken += ask
	}
	return taken, nil
}

// refundUpTo refunds leases of up to n permits in all, the last one first.
func (c *Call[R]) refundUpTo(p *Policy[R], n int) (back int, err error) {
	for back < n {
		lease, err := c.leaseToRefund(p, n-back)
		if err != nil {
			return back, err
		}
		if !lease.Acquired() {
			break
		}
		back += lease.Permits()
		lease.Refund()
	}
	return back, nil
}

// leaseToRefund removes the last lease of the policy from the call and returns it; the zero Lease if there is none. The
// error is ErrPartialRefund if that lease has more than n permits.
func (c *Call[R]) leaseToRefund(p *Policy[R], n int) (limiter.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range slices.Backward(c.held) {
		g := &c.held[i]
		if g.policy != p || g.correction != nil || !g.lease.Acquired() {
			continue
		}
		lease := g.lease
		if lease.Permits() > n {
			return limiter.Lease{}, c.limits.transport.ErrPartialRefund
		}
		g.lease = limiter.Lease{}
		return lease, nil
	}
	return limiter.Lease{}, nil
}
