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

func (h *leaseRenewer) add(l *heldLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == nil {
		h.leases, h.wakeup = map[string]*heldLease{}, make(chan struct{}, 1)
	}
	h.leases[l.id] = l
	if !h.running {
		h.running = true
		go h.run()
	} else if time.Until(h.next) > l.interval() {
		h.wake()
	}
}

func (h *leaseRenewer) canAsk(l *heldLease) bool {
	return h.s.cannotAsk(h.s.shardOf(l.c.name, l.key)) == nil
}

func (h *leaseRenewer) wake() {
	select {
	case h.wakeup <- struct{}{}:
	default:
	}
}

// send sends a renewal or a release.
func (h *leaseRenewer) send(l *heldLease) {
	h.mu.Lock()
	l.lastSent = time.Now()
	w := renewLease
	if l.released {
		w = releaseLease
	}
	lc := l.c.newLeaseCall(w, l.key, l.id, l.n)
	lc.request.Fence = l.fence
	h.mu.Unlock()
	lc.onAnswer = func() { h.answered(l, lc) }
	h.s.sendLease(lc)
}

// answered enters the store's answer.
func (h *leaseRenewer) answered(l *heldLease, lc *leaseCall) {
	if lc.err != nil {
		return // run tries again
	}
	h.mu.Lock()
	lost, over := false, l.ended
	switch {
	case lc.kind == releaseLease:
		h.end(l)
	case lc.request.OK:
		l.certainUntil = lc.sent.Add(l.c.o.LeaseTTL)
	case !l.released:
		lost = h.end(l)
	}
	over = l.ended && !over
	h.mu.Unlock()
	if over {
		l.uncount()
	}
	switch {
	case lost:
		l.tellLost(errLeaseGone)
	case lc.kind == releaseLease:
		l.c.wake(l.key)
	}
}

// end reports whether the lease had not ended before.
func (h *leaseRenewer) end(l *heldLease) bool {
	if h.leases[l.id] == l {
		delete(h.leases, l.id)
	}
	if len(h.leases) == 0 {
		h.wake() // run can return
	}
	was := !l.ended
	l.ended = true
	return was
}

// run renews until no lease is left or the Store is closed.
func (h *leaseRenewer) run() {
	for {
		pause, ok := h.pause()
		if !ok {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-h.wakeup:
		case <-h.s.ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
		h.renewDue(time.Now())
	}
}

// pause returns the time until the next look at the leases: a sixth of the shortest TTL, or when the first of them
// ends.
func (h *leaseRenewer) pause() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.leases) == 0 {
		h.running = false
		return 0, false
	}
	now := time.Now()
	least := time.Hour
	for _, l := range h.leases {
		least = min(least, l.interval(), max(l.certainUntil.Sub(now), 0))
	}
	h.next = now.Add(least)
	return least, true
}

// renewDue renews leases that were not renewed for a third of their TTL, and ends those that have expired.
func (h *leaseRenewer) renewDue(now time.Time) {
	var due, ended, over []*heldLease
	h.mu.Lock()
	for _, l := range h.leases {
		switch {
		case !now.Before(l.certainUntil):
			h.end(l)
			over = append(over, l)
			if !l.released {
				ended = append(ended, l)
			}
		case now.Sub(l.lastSent) >= l.interval() && (l.released || now.Sub(l.certainUntil.Add(-l.c.o.LeaseTTL)) >= 2*l.interval()):
			due = append(due, l)
		}
	}
	h.mu.Unlock()
	for _, l := range over {
		l.uncount()
	}
	for _, l := range ended {
		l.tellLost(errRenewedLate)
	}
	for _, l := range due {
		if h.canAsk(l) {
			h.send(l)
		}
	}
}
