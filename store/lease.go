package store

import (
	"time"

	"github.com/weir-go/weir/limiter"
)

// Keys of the metadata on the leases of shared concurrency limiters.
var (
	// FenceKey has a fencing token: it grows with every lease of the same key. A service that is written to under a lease
	// can refuse every write with a token smaller than the largest it has seen, so that an instance that was suspended
	// for longer than LeaseTTL does no harm when it continues.
	FenceKey = limiter.NewMetadataKey[int64]("LEASE_FENCE")
	// LostKey has a channel that is closed if the lease ends before it is released.
	LostKey = limiter.NewMetadataKey[<-chan struct{}]("LEASE_LOST")
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

	// The lock of the leaseRenewer guards the following fields.

	fence      int64     // 0: not known, because the answer was lost
	validUntil time.Time // the lease does not end before
	lastSent   time.Time // when it was last sent to be renewed or released
	released   bool
	ended      bool // nothing is left to do
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

// releaseUnknown releases a lease that was or may have been granted, because the caller has left or the answer was lost.
// fence is 0 if it is not known.
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
		validUntil: since.Add(lc.c.o.LeaseTTL), lastSent: since,
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

// uncount takes the lease out of keyState.held. It is called when the lease has ended.
func (l *heldLease) uncount() {
	if !l.counted {
		return
	}
	if ks := l.c.keys.lock(l.key, false); ks != nil {
		ks.held = max(ks.held-l.n, 0)
		ks.mu.Unlock()
	}
}

func (l *heldLease) reportLost(err error) {
	close(l.lost)
	l.c.s.report(Event{Kind: EventLeaseLost, Limiter: l.c.name, Key: l.key, Permits: l.n, Err: err})
}
