package store

import (
	"errors"
	"sync"
	"time"
)

// A leaseRenewer renews the leases that this instance holds, and releases those whose release has failed. It has a
// goroutine while there are any.
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
	errRenewedLate = errors.New("it could not be renewed in time")
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
	r.mu.Unlock()
	lc.onAnswer = func() { r.answered(l, lc) }
	r.s.sendLease(lc)
}

// answered enters the store's answer.
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
		l.c.wake(l.key)
	case ended:
		l.reportLost(errLeaseGone)
	}
}

// end reports whether the lease had not ended before. The leaseRenewer is locked.
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

// pause returns the time until the next look at the leases: a sixth of the shortest TTL, or when the first of them
// ends.
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

// renewDue renews the leases that were not renewed for a third of their TTL, and ends the expired ones.
func (r *leaseRenewer) renewDue(now time.Time) {
	var due, expired, lost []*heldLease
	r.mu.Lock()
	for _, l := range r.leases {
		switch {
		case !now.Before(l.validUntil):
			r.end(l)
			expired = append(expired, l)
			if !l.released {
				lost = append(lost, l)
			}
		case now.Sub(l.lastSent) >= l.interval() && (l.released || now.Sub(l.validUntil.Add(-l.c.o.LeaseTTL)) >= 2*l.interval()):
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
