package store

import (
	"time"

	"github.com/weir-go/weir/limiter"
)

// A heldLease owns a lease of a concurrency limiter.
type heldLease struct {
	c       *core
	key     string
	id      string
	n       int64
	granter *limiter.Granter
	counted bool          // in keyState.held
	lost    chan struct{} // closed if the lease ends before it is released

	// The lock of the leaseRenewer guards the rest.

	fence        int64     // 0: not known, because the answer was lost
	certainUntil time.Time // the lease does not end before
	lastSent     time.Time // when it was last sent to be renewed or released
	released     bool
	ended        bool // nothing is left to do
}

// grant returns the lease that the store has granted.
func (r *leaseRenewer) grant(lc *leaseCall) limiter.Lease {
	l := lc.newHeldLease(lc.request.Fence, lc.sent)
	l.granter = limiter.NewGranter(l)
	r.add(l)
	lease := l.granter.Grant(int(l.n), 0)
	lease = LostKey.With(lease, l.lost)
	return FenceKey.With(lease, l.fence)
}

// releaseUnknown releases a lease that no caller has: the caller has left, or the answer was lost, and with it the
// fencing token.
func (r *leaseRenewer) releaseUnknown(lc *leaseCall, fence int64) {
	l := lc.newHeldLease(fence, time.Now())
	l.released = true
	r.add(l)
	if r.reachable(l) {
		r.send(l)
	}
}

func (lc *leaseCall) newHeldLease(fence int64, since time.Time) *heldLease {
	return &heldLease{
		c: lc.c, key: lc.request.Key, id: lc.request.ID, n: lc.request.Permits, counted: lc.counted, fence: fence, lost: make(chan struct{}),
		certainUntil: since.Add(lc.c.o.LeaseTTL), lastSent: since,
	}
}

// interval is how often the lease is looked at.
func (l *heldLease) interval() time.Duration { return l.c.o.LeaseTTL / 6 }

// Release releases the lease in the background.
func (l *heldLease) Release(int, int64) {
	r := &l.c.s.renewer
	r.mu.Lock()
	done := l.released || l.ended
	l.released = true
	r.mu.Unlock()
	if !done && r.reachable(l) {
		r.send(l)
	}
}

// Refund is Release, and the grant does not count.
func (l *heldLease) Refund(n int, tag int64) {
	l.c.granted.Add(-1)
	l.Release(n, tag)
}

// uncount is called when the lease has ended.
func (l *heldLease) uncount() {
	if !l.counted {
		return
	}
	if ks := l.c.keys.lock(l.key, false); ks != nil {
		ks.held = max(ks.held-l.n, 0)
		ks.mu.Unlock()
	}
}

func (l *heldLease) tellLost(err error) {
	close(l.lost)
	l.c.s.report(Event{Kind: EventLeaseLost, Limiter: l.c.name, Key: l.key, Permits: l.n, Err: err})
}
