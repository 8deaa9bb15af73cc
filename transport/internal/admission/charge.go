package admission

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/weir-go/weir/limiter"
)

// LeaseFrom returns the first lease of [Transport.Leases]. ok is false if there is none.
func (t *Transport[R]) LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) {
	for _, l = range t.Leases(ctx) {
		return l, true
	}
	return limiter.Lease{}, false
}

// Leases returns an iterator over the leases of the call, the last one first, with the name of their policy.
func (t *Transport[R]) Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] {
	return func(yield func(string, limiter.Lease) bool) {
		for c := CallOf[R](ctx); c != nil; c = c.outer() {
			for _, g := range slices.Backward(c.all()) {
				if !g.topUp && g.lease.Acquired() && !yield(g.policy.Name, g.lease) {
					return
				}
			}
		}
	}
}

// Charge adds n permits to the cost of the call. It applies to the named policies or, without names, to all that are Metered.
// charged is the number of permits by which the cost has grown. The transports document it for handlers.
func (t *Transport[R]) Charge(ctx context.Context, n int, policies ...string) (charged int, err error) {
	n = max(n, -math.MaxInt) // so that -n does not overflow
	matched := false
	for c := CallOf[R](ctx); c != nil; c = c.outer() {
		for _, p := range c.chargeable(policies) {
			c.spend(p)
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

// chargeable returns the policies with a grant that are among names or, without names, are Metered.
func (c *Call[R]) chargeable(names []string) []*Policy[R] {
	var all []*Policy[R]
	for _, g := range c.all() {
		p := g.policy
		if g.topUp || len(names) == 0 && !p.Metered || len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		all = append(all, p)
	}
	return all
}

// charge corrects the cost for one policy: it adjusts the lease of the call. If the limiter cannot do that, charge takes n more
// permits as additional leases, or refunds whole leases.
func (c *Call[R]) charge(p *Policy[R], n int) (charged int, err error) {
	if charged, ok := c.adjust(p, n); ok {
		return charged, nil
	}
	if n < 0 {
		back, err := c.refundUpTo(p, -n)
		return -back, err
	}
	return c.topUp(p, n)
}

// adjust corrects the lease of the call. The grants are locked meanwhile, so that corrections follow each other and End waits for
// the last one. So Adjust of a limiter of the program must not call LeaseFrom or Charge.
func (c *Call[R]) adjust(p *Policy[R], n int) (charged int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		g := &c.held[i]
		if g.policy != p || g.topUp || !g.lease.Acquired() {
			continue
		}
		before := g.lease.Permits()
		adjusted, ok := g.lease.Adjust(max(before+min(n, math.MaxInt-before), 0))
		if ok {
			g.lease, charged = adjusted, adjusted.Permits()-before
		}
		return charged, ok
	}
	return 0, false
}

// topUp takes n more permits, or as many as it gets: after each rejection it asks for half as many, because it cannot know how many
// the limiter has.
func (c *Call[R]) topUp(p *Policy[R], n int) (taken int, err error) {
	ctx := context.WithoutCancel(c)
	granted, ok := c.of(p)
	if !ok {
		return 0, c.limits.transport.ErrNotCharged
	}
	for ask := n; ask > 0; ask = min(ask, n-taken) {
		lease, err := p.Limit.ask(ctx, c.Request, granted.key, ask, false)
		if err != nil {
			lease.Refund() // a limiter of the program may have granted permits and returned an error
			if !errors.Is(err, limiter.ErrPermitCount) {
				return taken, err
			}
			lease = limiter.Lease{}
		}
		if !lease.Acquired() {
			ask /= 2
			continue
		}
		if !c.hold(grant[R]{policy: p, lease: lease, topUp: true, use: spent}) {
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

// leaseToRefund takes the last lease of the policy out of its grant. It returns the zero Lease if there is none, and ErrPartialRefund
// if the lease has more than n permits.
func (c *Call[R]) leaseToRefund(p *Policy[R], n int) (limiter.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range slices.Backward(c.held) {
		g := &c.held[i]
		if g.policy != p || !g.lease.Acquired() {
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
