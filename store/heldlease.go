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
	by      *limiter.Granter
	counted bool          // in held of its cell
	lost    chan struct{} // closed when the lease has ended before it was released

	// Guarded by the heart's lock.

	fence    int64     // 0: not known, because the answer was lost
	until    time.Time // it is certain to last until then
	asked    time.Time // when it was last to be renewed or released
	released bool
	over     bool // nothing is to be done about it any more
}

// begin returns the lease that was granted.
func (h *heart) begin(x *holding) limiter.Lease {
	l := x.heldLease(x.h.Fence, x.sent)
	l.by = limiter.NewGranter(l)
	h.keep(l)
	lease := l.by.Grant(int(l.n), 0)
	lease = LostKey.With(lease, l.lost)
	return FenceKey.With(lease, l.fence)
}

// forget releases a lease that nobody knows of: who asked for it has left, or the answer was
// lost on the way, and with it the fence.
func (h *heart) forget(x *holding, fence int64) {
	l := x.heldLease(fence, time.Now())
	l.released = true
	h.keep(l)
	if h.canAsk(l) {
		h.send(l)
	}
}

func (x *holding) heldLease(fence int64, since time.Time) *heldLease {
	return &heldLease{
		c: x.c, key: x.h.Key, id: x.h.ID, n: x.h.Permits, counted: x.counted, fence: fence, lost: make(chan struct{}),
		until: since.Add(x.c.o.LeaseTTL), asked: since,
	}
}

// often is how often the lease is looked at.
func (l *heldLease) often() time.Duration { return l.c.o.LeaseTTL / 6 }

// Release gives the permits back, in the background.
func (l *heldLease) Release(int, int64) {
	h := &l.c.s.beat
	h.mu.Lock()
	done := l.released || l.over
	l.released = true
	h.mu.Unlock()
	if !done && h.canAsk(l) {
		h.send(l)
	}
}

// Refund is Release of a grant that does not count.
func (l *heldLease) Refund(n int, tag int64) {
	l.c.granted.Add(-1)
	l.Release(n, tag)
}

// uncount is called when the lease has ended.
func (l *heldLease) uncount() {
	if !l.counted {
		return
	}
	if ce := l.c.cells.lock(l.key, false); ce != nil {
		ce.held = max(ce.held-l.n, 0)
		ce.mu.Unlock()
	}
}

func (l *heldLease) tellLost(err error) {
	close(l.lost)
	l.c.s.report(Event{Kind: EventLeaseLost, Limiter: l.c.name, Key: l.key, Permits: l.n, Err: err})
}
