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

// charge runs functions of the limiter, which may be the program's, so c.mu is not
// locked meanwhile: they may call LeaseFrom, or Charge again.
func (c *call) charge(p *policy, n int) (charged int, err error) {
	x, added := c.beginCharge(p, n)
	if added != 0 {
		return added, nil // the one who makes the correction under way sees to it
	}
	ok, later := false, 0
	if x != nil {
		charged, later, ok = x.correct(c)
	}
	if !ok {
		charged, err = c.chargeApart(p, n)
	}
	if later != 0 {
		_, _ = c.charge(p, later)
	}
	return charged, err
}

// chargeApart is for permits that are lent, and for limiters of the program.
func (c *call) chargeApart(p *policy, n int) (int, error) {
	if n < 0 {
		back, err := c.refund(p, -n)
		return -back, err
	}
	return c.topUp(p, n)
}

// A charging is a correction of a lease that is under way.
type charging struct {
	grant grant
	asked int // how many permits the lease is to have

	// Under the call's mu:
	want int  // asked, and what other calls of Charge have added meanwhile
	gone bool // the call no longer has the grant: the lease is to be given back
	undo bool // with undo, not with Release
}

// beginCharge finds what the policy has granted, and returns the correction that the
// caller has to make. If one is under way, it adds n to that one and returns how much
// that is.
func (c *call) beginCharge(p *policy, n int) (x *charging, added int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, 0
	}
	for i := range c.held {
		g := &c.held[i]
		if g.policy != p || g.since == extra || !g.lease.Acquired() {
			continue
		}
		if x = g.charging; x != nil {
			before := x.want
			x.want = cost(before, n)
			return nil, x.want - before
		}
		want := cost(g.lease.Permits(), n)
		x = &charging{grant: *g, asked: want, want: want}
		g.charging = x
		return x, 0
	}
	return nil, 0
}

// cost is n permits more than before, and not less than none.
func cost(before, n int) int { return max(before+min(n, math.MaxInt-before), 0) }

// correct makes the lease one of the permits that are asked for. ok is false if its
// permits are lent, or the limiter cannot do it. later is what other calls of Charge
// have added meanwhile.
func (x *charging) correct(c *call) (charged, later int, ok bool) {
	lease := x.grant.lease
	defer func() { later = x.end(c, lease) }() // also if the limiter panics
	adjusted, ok := lease.Adjust(x.asked)
	if ok {
		charged = adjusted.Permits() - lease.Permits()
		lease = adjusted
	}
	return charged, 0, ok
}

// end puts the lease back to where it came from, or gives it back if the call has
// ended.
func (x *charging) end(c *call, lease limiter.Lease) (later int) {
	c.mu.Lock()
	for i := range c.held {
		if g := &c.held[i]; g.charging == x {
			g.lease, g.charging = lease, nil
		}
	}
	later, x.grant.lease = x.want-x.asked, lease
	gone, undo := x.gone, x.undo
	c.mu.Unlock()
	switch {
	case gone && undo:
		c.undo([]grant{x.grant})
	case gone:
		c.release([]grant{x.grant})
	}
	return later
}

// topUp takes n permits more, or as many as there are. What a limiter has left is
// not known beforehand, and other requests may take it meanwhile: so it asks for half
// as many whenever it was too many.
func (c *call) topUp(p *policy, n int) (taken int, err error) {
	ctx := context.WithoutCancel(c)
	_, key, ok := c.leaseOf(p)
	if !ok {
		return 0, ErrNotCharged
	}
	for ask := n; ask > 0; ask = min(ask, n-taken) {
		lease, err := p.ask(ctx, c.request, key, ask, false)
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
	for back < n {
		lease, err := c.leaseToRefund(p, n-back)
		if err != nil {
			return back, err
		}
		if !lease.Acquired() {
			break
		}
		back += lease.Permits()
		undo(lease)
	}
	return back, nil
}

// leaseToRefund takes the last lease of the policy away from the call; the zero Lease
// if there is none. One of more than n permits cannot be given back in part.
func (c *call) leaseToRefund(p *policy, n int) (limiter.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range slices.Backward(c.held) {
		g := &c.held[i]
		if g.policy != p || g.charging != nil || !g.lease.Acquired() {
			continue
		}
		lease := g.lease
		if lease.Permits() > n {
			return limiter.Lease{}, ErrPartialRefund
		}
		g.lease = limiter.Lease{}
		return lease, nil
	}
	return limiter.Lease{}, nil
}
