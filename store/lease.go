package store

import (
	"errors"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
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
	counted bool          // in keyState.held; see leaseCall.count
	lost    chan struct{} // closed if the lease ends before it is released

	// The lock of the leaseRenewer guards the following fields.

	fence      int64     // 0: not known, because the answer was lost
	validUntil time.Time // the lease does not end before this moment
	lastSent   time.Time // when it was last sent to be renewed or released
	released   bool
	ended      bool // nothing is left to do
}

// hold returns the lease that the store has granted, and renews it.
func (r *leaseRenewer) hold(lc *leaseCall) limiter.Lease {
	l := lc.newHeldLease(lc.request.Fence, lc.sent)
	r.add(l)
	lease := custom.GrantedBy(l, int(l.n), 0)
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
		c: lc.c, key: lc.request.Key, id: lc.request.ID, n: lc.request.Permits, counted: lc.counted.Swap(false), fence: fence, lost: make(chan struct{}),
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
	l.c.count.granted.Add(-1)
	l.Release(n, tag)
}

// uncount is called when the lease has ended.
func (l *heldLease) uncount() {
	if l.counted {
		l.c.uncountLease(l.key, l.n)
	}
}

func (l *heldLease) reportLost(err error) {
	close(l.lost)
	l.c.s.report(Event{Kind: EventLeaseLost, Limiter: l.c.name, Key: l.key, Permits: l.n, Err: err})
}

// A leaseRenewer renews the leases that this instance holds, and releases those whose release has failed. It has a
// goroutine while there are such leases.
type leaseRenewer struct {
	s       *Store
	mu      sync.Mutex
	leases  map[string]*heldLease // by ID
	running bool
	next    time.Time     // when run looks at the leases again
	wakeup  chan struct{} // one signal: look now
}

// errLeaseGone and errRenewedLate are why a lease was lost.
var (
	errLeaseGone   = errors.New("the store has no such lease any more")
	errRenewedLate = errors.New("the lease could not be renewed in time")
)

func (r *leaseRenewer) add(l *heldLease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leases == nil {
		r.leases, r.wakeup = map[string]*heldLease{}, make(chan struct{}, 1)
	}
	r.leases[l.id] = l
	if !r.running {
		r.running = true
		go r.run()
	} else if time.Until(r.next) > l.interval() {
		r.wake()
	}
}

func (r *leaseRenewer) reachable(l *heldLease) bool {
	return r.s.checkShard(r.s.shardOf(l.c.name, l.key)) == nil
}

func (r *leaseRenewer) wake() {
	select {
	case r.wakeup <- struct{}{}:
	default:
	}
}

// send renews a lease, or releases it if it is released.
func (r *leaseRenewer) send(l *heldLease) {
	r.mu.Lock()
	l.lastSent = time.Now()
	op := renewLease
	if l.released {
		op = releaseLease
	}
	lc := l.c.newLeaseCall(op, l.key, l.id, l.n)
	lc.request.Fence = l.fence
	lc.onAnswer = func() { r.answered(l, lc) }
	if l.released {
		end := l.c.giveBacks.begin(l.key)
		lc.onAnswer = func() {
			r.answered(l, lc)
			end()
		}
	}
	r.mu.Unlock()
	r.s.sendLease(lc)
}

// answered processes the store's answer.
func (r *leaseRenewer) answered(l *heldLease, lc *leaseCall) {
	if lc.err != nil {
		return // run tries again
	}
	r.mu.Lock()
	ended := false
	switch {
	case lc.op == releaseLease:
		ended = r.end(l)
	case lc.request.OK:
		l.validUntil = lc.sent.Add(l.c.o.LeaseTTL)
	case !l.released:
		ended = r.end(l)
	}
	r.mu.Unlock()
	if ended {
		l.uncount()
	}
	switch {
	case lc.op == releaseLease:
		l.c.wakeKey(l.key)
	case ended:
		l.reportLost(errLeaseGone)
	}
}

// end forgets the lease and reports whether it had not ended before. The leaseRenewer is locked.
func (r *leaseRenewer) end(l *heldLease) bool {
	if r.leases[l.id] == l {
		delete(r.leases, l.id)
	}
	if len(r.leases) == 0 {
		r.wake() // run can return
	}
	was := !l.ended
	l.ended = true
	return was
}

// run renews until no lease is left or the Store is closed.
func (r *leaseRenewer) run() {
	for {
		pause, ok := r.pause()
		if !ok {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-r.wakeup:
		case <-r.s.ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
		r.renewDue(time.Now())
	}
}

// pause returns the time until the next look at the leases: a sixth of the shortest TTL, or less if a lease ends before.
// It returns false if there are no leases.
func (r *leaseRenewer) pause() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leases) == 0 {
		r.running = false
		return 0, false
	}
	now := time.Now()
	least := time.Hour
	for _, l := range r.leases {
		least = min(least, l.interval(), max(l.validUntil.Sub(now), 0))
	}
	r.next = now.Add(least)
	return least, true
}

// renewDue renews the leases that were not renewed for a third of their TTL, sends releases again that have failed, and
// ends the expired leases.
func (r *leaseRenewer) renewDue(now time.Time) {
	var due, expired, lost []*heldLease
	r.mu.Lock()
	for _, l := range r.leases {
		renewed := l.validUntil.Add(-l.c.o.LeaseTTL)
		switch {
		case !now.Before(l.validUntil):
			r.end(l)
			expired = append(expired, l)
			if !l.released {
				lost = append(lost, l)
			}
		case now.Sub(l.lastSent) >= l.interval() && (l.released || now.Sub(renewed) >= 2*l.interval()):
			due = append(due, l)
		}
	}
	r.mu.Unlock()
	for _, l := range expired {
		l.uncount()
	}
	for _, l := range lost {
		l.reportLost(errRenewedLate)
	}
	for _, l := range due {
		if r.reachable(l) {
			r.send(l)
		}
	}
}
