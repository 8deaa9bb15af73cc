package admission

import (
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A grant is what a policy has granted to a call.
type grant[R any] struct {
	policy *Policy[R]
	lease  limiter.Lease
	key    string        // what the Key of the policy's Limit returned
	since  time.Duration // clock.Now when it was granted, if the call is measured
	ended  func()        // tells the Listener that the lease has ended; nil: it does not want to know
	topUp  bool          // Charge took it in addition to the lease of the policy; Leases leave it out
	use    use
}

// A use is whether the handler has used a grant.
type use uint8

const (
	open   use = iota // not known yet: the handler runs, or may run
	unused            // the last attempt was shed: End refunds the grant, unless another attempt follows
	spent             // an attempt has run the handler, or Charge was called: End releases the grant
)

// grants are the grants that a call holds.
type grants[R any] struct {
	keep int // how many grants were made before the pipeline whose attempt runs

	mu    sync.Mutex
	over  bool // the handler has returned: nothing more is held
	held  []grant[R]
	array [2]grant[R] // the first array of held: most handlers have one policy or two
}

// hold adds a grant, which End gives back. It returns false if the call is over.
func (h *grants[R]) hold(g grant[R]) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = h.array[:0]
	}
	if !h.over {
		h.held = append(h.held, g)
	}
	return !h.over
}

// Held returns how many grants there are.
func (h *grants[R]) Held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// all returns a copy of the grants.
func (h *grants[R]) all() []grant[R] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.held)
}

// change calls f with each grant, with the grants locked.
func (h *grants[R]) change(f func(*grant[R])) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.held {
		f(&h.held[i])
	}
}

// of returns the first grant of the policy, if there is one.
func (h *grants[R]) of(p *Policy[R]) (g grant[R], ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.held, func(g grant[R]) bool { return g.policy == p }); i >= 0 {
		return h.held[i], true
	}
	return grant[R]{}, false
}

// End gives everything back when the handler has returned.
func (h *grants[R]) End() {
	h.mu.Lock()
	held := h.held
	h.held, h.over = nil, true
	h.mu.Unlock()
	giveBack(held, false)
}

// BeginAttempt is called when a pipeline runs the later policies and the handler. It releases the grants of an earlier attempt: all
// but the first keep, which were made before the pipeline.
func (h *grants[R]) BeginAttempt(keep int) {
	h.keep = keep
	h.giveBackFrom(keep, false)
}

// NextAttempt prepares the grants for another attempt. What the last attempt has not left unused, it has spent.
func (h *grants[R]) NextAttempt() {
	h.change(func(g *grant[R]) {
		if g.use == unused {
			g.use = open
		} else {
			g.use = spent
		}
	})
}

// MarkUnused makes End refund the grants: nothing was called. The permits are held until then, because the handler can answer by
// itself, and a pipeline can make another attempt.
func (h *grants[R]) MarkUnused() {
	h.change(func(g *grant[R]) {
		if g.use == open {
			g.use = unused
		}
	})
}

// spend makes what the policy has granted spent: the handler has corrected its cost, so it has done work.
func (h *grants[R]) spend(p *Policy[R]) {
	h.change(func(g *grant[R]) {
		if g.policy == p {
			g.use = spent
		}
	})
}

// Refund refunds the grants of a call that a policy does not admit. If the policy was asked in a pipeline, End refunds the grants
// that were made before the pipeline.
func (h *grants[R]) Refund() {
	h.giveBackFrom(h.keep, true)
	h.MarkUnused()
}

// giveBackFrom removes all grants but the first keep, and gives them back.
func (h *grants[R]) giveBackFrom(keep int, refund bool) {
	h.mu.Lock()
	var removed []grant[R]
	if keep < len(h.held) {
		removed = slices.Clone(h.held[keep:])
		h.held = h.held[:keep]
	}
	h.mu.Unlock()
	giveBack(removed, refund)
}

// GiveBackOf removes the grants of the policy, and gives them back.
func (h *grants[R]) GiveBackOf(p *Policy[R], refund bool) {
	var array [1]grant[R] // so that a message of a stream allocates nothing
	removed := array[:0]
	h.mu.Lock()
	h.held = slices.DeleteFunc(h.held, func(g grant[R]) bool {
		if g.policy == p {
			removed = append(removed, g)
		}
		return g.policy == p
	})
	h.mu.Unlock()
	giveBack(removed, refund)
}

// giveBack releases the grants, the last one first. It refunds a grant that is unused and, if refund is true, every grant that is
// not spent. If a lease panics, the others are still given back.
func giveBack[R any](grants []grant[R], refund bool) {
	if len(grants) == 0 {
		return
	}
	last := len(grants) - 1
	if last > 0 {
		defer giveBack(grants[:last], refund)
	}
	g := &grants[last]
	if g.ended != nil {
		defer g.ended()
	}
	if refund && g.use != spent || g.use == unused {
		g.lease.Refund()
		return
	}
	g.lease.Release()
}
