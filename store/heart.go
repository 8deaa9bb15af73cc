package store

import (
	"errors"
	"sync"
	"time"
)

// A heart renews the leases that this instance holds, and gives back those that could not be
// given back at once. It has a goroutine while there are any.
type heart struct {
	s       *Store
	mu      sync.Mutex
	leases  map[string]*heldLease // by ID
	beating bool
	next    time.Time     // when leases are looked at again
	sooner  chan struct{} // one signal: look at them now
}

// errGone and errLate are why a lease was lost.
var (
	errGone = errors.New("the store has no such lease any more")
	errLate = errors.New("it could not be renewed in time")
)

func (h *heart) keep(l *heldLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == nil {
		h.leases, h.sooner = map[string]*heldLease{}, make(chan struct{}, 1)
	}
	h.leases[l.id] = l
	if !h.beating {
		h.beating = true
		go h.run()
	} else if time.Until(h.next) > l.often() {
		h.hurry()
	}
}

func (h *heart) canAsk(l *heldLease) bool { return h.s.cannotAsk(h.s.partOf(l.c.name, l.key)) == nil }

func (h *heart) hurry() {
	select {
	case h.sooner <- struct{}{}:
	default:
	}
}

// send has the lease renewed or released.
func (h *heart) send(l *heldLease) {
	h.mu.Lock()
	l.asked = time.Now()
	w := toRenew
	if l.released {
		w = toRelease
	}
	x := l.c.newHolding(w, l.key, l.id, l.n)
	x.h.Fence = l.fence
	h.mu.Unlock()
	x.then = func() { h.came(l, x) }
	h.s.sendHolding(x)
}

// came enters what the store has answered.
func (h *heart) came(l *heldLease, x *holding) {
	if x.err != nil {
		return // run tries again
	}
	h.mu.Lock()
	lost, over := false, l.over
	switch {
	case x.what == toRelease:
		h.end(l)
	case x.h.OK:
		l.until = x.sent.Add(l.c.o.LeaseTTL)
	case !l.released:
		lost = h.end(l)
	}
	over = l.over && !over
	h.mu.Unlock()
	if over {
		l.uncount()
	}
	switch {
	case lost:
		l.tellLost(errGone)
	case x.what == toRelease:
		l.c.wake(l.key)
	}
}

// end returns whether the lease was still to be seen to.
func (h *heart) end(l *heldLease) bool {
	if h.leases[l.id] == l {
		delete(h.leases, l.id)
	}
	if len(h.leases) == 0 {
		h.hurry() // there is nothing more to do
	}
	was := !l.over
	l.over = true
	return was
}

// run renews until there is no lease left, or the store is closed.
func (h *heart) run() {
	for {
		pause, ok := h.pause()
		if !ok {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-h.sooner:
		case <-h.s.ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
		h.beat(time.Now())
	}
}

// pause is the time until the next look at the leases: a sixth of the shortest TTL, or when
// the first of them has run out.
func (h *heart) pause() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.leases) == 0 {
		h.beating = false
		return 0, false
	}
	now := time.Now()
	least := time.Hour
	for _, l := range h.leases {
		least = min(least, l.often(), max(l.until.Sub(now), 0))
	}
	h.next = now.Add(least)
	return least, true
}

// beat renews what was not renewed for a third of its TTL, and ends what has run out.
func (h *heart) beat(now time.Time) {
	var due, ended, over []*heldLease
	h.mu.Lock()
	for _, l := range h.leases {
		switch {
		case !now.Before(l.until):
			h.end(l)
			over = append(over, l)
			if !l.released {
				ended = append(ended, l)
			}
		case now.Sub(l.asked) >= l.often() && (l.released || now.Sub(l.until.Add(-l.c.o.LeaseTTL)) >= 2*l.often()):
			due = append(due, l)
		}
	}
	h.mu.Unlock()
	for _, l := range over {
		l.uncount()
	}
	for _, l := range ended {
		l.tellLost(errLate)
	}
	for _, l := range due {
		if h.canAsk(l) {
			h.send(l)
		}
	}
}
