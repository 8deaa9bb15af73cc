package weirhttp

import (
	"context"
	"errors"
	"iter"
	"math"
	"net/http"
	"slices"

	"github.com/weir-go/weir/limiter"
)

// RequestFrom returns the request of a context that comes from a handler's, as it
// was when its route asked the policies; nil if there is none. Limiters inside a
// [PipelinePolicy] find their key with it.
func RequestFrom(ctx context.Context) *http.Request {
	if c := callOf(ctx); c != nil {
		return c.request
	}
	return nil
}

// LeaseFrom returns the lease that the last policy of the innermost route has
// granted to the request. ok is false if there is none: no policy, or one that let
// the request through without granting, or the handler has returned.
//
// The lease is released when the handler has returned. A handler that is done with
// what is scarce may release it earlier.
func LeaseFrom(ctx context.Context) (l limiter.Lease, ok bool) {
	for _, l = range Leases(ctx) {
		return l, true
	}
	return limiter.Lease{}, false
}

// Leases yields all leases of the request by the name of their policy, the last one
// first. Policies that are pipelines keep their leases to themselves.
func Leases(ctx context.Context) iter.Seq2[string, limiter.Lease] {
	return func(yield func(string, limiter.Lease) bool) {
		for c := callOf(ctx); c != nil; c = c.outer() {
			for _, g := range slices.Backward(c.grants()) {
				if g.since != extra && g.lease.Acquired() && !yield(g.policy.name, g.lease) {
					return
				}
			}
		}
	}
}

func (c *call) grants() []grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.held)
}

// Errors of [Charge].
var (
	// ErrNotCharged: no such policy has granted the request anything, or the
	// handler has returned.
	ErrNotCharged = errors.New("weirhttp: no policy to charge")
	// ErrPartialRefund: the limiter, which lends its permits or was written
	// elsewhere, can take back only the whole of a lease.
	ErrPartialRefund = errors.New("weirhttp: the lease cannot be given back in part")
)

// Charge corrects what a request has cost, once that is known: it takes n permits
// more, or gives -n back, as if they had not been taken. It goes to the policies of
// those names, or without names to those that are [Policy.Metered].
//
//	limits.Handler(completions, "tokens-per-minute") // Cost is an estimate, Metered
//	…
//	weirhttp.Charge(r.Context(), used-estimate)
//
// It never waits, also for a client that has gone. Buckets and windows owe what is
// not there: later requests are rejected until time has paid for it. A limiter that
// lends its permits, or that was written elsewhere, takes what there is, and those
// go back when the handler has returned. charged is by how much the request costs
// more than before, less than 0 for what was given back; with several policies it
// is the one where the least could be done.
func Charge(ctx context.Context, n int, policies ...string) (charged int, err error) {
	matched := false
	for c := callOf(ctx); c != nil; c = c.outer() {
		for _, p := range c.chargeable(policies) {
			did, e := c.charge(p, n)
			if !matched || abs(did) < abs(charged) {
				charged = did
			}
			matched = true
			err = errors.Join(err, e)
		}
	}
	if !matched {
		return 0, ErrNotCharged
	}
	return charged, err
}

func abs(n int) int { return max(n, -n) }

// chargeable are the policies that have granted something, and that are meant.
func (c *call) chargeable(names []string) []*policy {
	var all []*policy
	for _, g := range c.grants() {
		p := g.policy
		if g.since == extra || len(names) == 0 && !p.Metered || len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		all = append(all, p)
	}
	return all
}

func (c *call) charge(p *policy, n int) (int, error) {
	if did, ok := c.adjust(p, n); ok {
		return did, nil
	}
	if n < 0 {
		back, err := c.refund(p, -n)
		return -back, err
	}
	return c.topUp(p, n)
}

// adjust corrects the lease itself, where its permits are spent and not lent.
func (c *call) adjust(p *policy, n int) (charged int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		g := &c.held[i]
		if g.policy != p || g.since == extra || !g.lease.Acquired() || c.over {
			continue
		}
		before := g.lease.Permits()
		cost := before + min(n, math.MaxInt-before)
		lease, ok := g.lease.Adjust(cost)
		if !ok {
			return 0, false
		}
		g.lease = lease
		return lease.Permits() - before, true
	}
	return 0, false
}

// topUp takes n permits more, or as many as there are. What a limiter has left is
// not known beforehand, and another may take it meanwhile: so it asks for half as
// many whenever it was too many.
func (c *call) topUp(p *policy, n int) (taken int, err error) {
	ctx := context.WithoutCancel(c)
	for ask := n; ask > 0; ask = min(ask, n-taken) {
		lease, err := p.ask(ctx, c.request, ask, false)
		if err != nil && !errors.Is(err, limiter.ErrPermitCount) {
			return taken, err
		}
		if !lease.Acquired() {
			ask /= 2
			continue
		}
		if !c.holdMore(grant{policy: p, lease: lease, since: extra}) {
			undo(lease)
			return taken, ErrNotCharged
		}
		taken += ask
	}
	return taken, nil
}

// holdMore is hold for a call that may be over.
func (c *call) holdMore(g grant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.held = append(c.held, g)
	}
	return !c.over
}

// refund gives n permits back, those that were taken last first.
func (c *call) refund(p *policy, n int) (back int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.held) - 1; i >= 0 && back < n; i-- {
		g := &c.held[i]
		if g.policy != p || !g.lease.Acquired() {
			continue
		}
		rest, ok := refund(g.lease, n-back)
		if !ok {
			return back, ErrPartialRefund
		}
		back += g.lease.Permits() - rest.Permits()
		g.lease = rest
	}
	return back, nil
}

// refund gives up to n permits of the lease back and returns what is left of it.
func refund(l limiter.Lease, n int) (rest limiter.Lease, ok bool) {
	if l.Permits() > n {
		return l, false
	}
	undo(l)
	return limiter.Lease{}, true
}
