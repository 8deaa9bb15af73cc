package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

const (
	// wakeWithin spreads those who are all woken at once because of the store.
	wakeWithin = 50 * time.Millisecond
	// pollOften and pollRarely are how often a concurrency limiter is asked that is waited
	// for: where nobody tells of releases, and where somebody does but may fail to.
	pollOften  = 50 * time.Millisecond
	pollRarely = time.Second
)

// rest waits for that long, or until there is a reason to ask earlier. Meanwhile it looks for new limits when that is
// due: without notices, a limiter that only has waiters would learn of a raise when their permits come anyway.
func (ce *cell) rest(wait time.Duration) {
	c, begun := ce.c, time.Now()
	for now := begun; ; now = time.Now() {
		left := wait - now.Sub(begun)
		if left <= 0 {
			return
		}
		c.refreshIfDue(now)
		t := time.NewTimer(min(left, c.refreshesIn(now)))
		select {
		case <-t.C:
		case <-ce.wakeup: // also if the limits have changed
			t.Stop()
			return
		}
	}
}

// refreshesIn is how long it takes until it is worth calling refreshIfDue again.
func (c *core) refreshesIn(now time.Time) time.Duration {
	left := c.s.o.RefreshInterval // for when the store cannot be asked now
	if in := c.inForce.Load(); in != nil && !now.After(in.due) {
		left = in.due.Sub(now) + 1 // refreshIfDue looks after that moment
	}
	return max(left, pollOften)
}

// storeIsAway reports whether the part of the store that has the key counts as away.
func (ce *cell) storeIsAway() bool { return ce.c.s.partOf(ce.c.name, ce.key).guard.err() != nil }

// resting is how much longer this instance leaves to others what is left of a line of which it
// has had its share. A caller who has just come, and wakes the goroutine, changes nothing about that.
func (ce *cell) resting() time.Duration {
	if ce.storeIsAway() {
		return 0
	}
	ce.mu.Lock()
	defer ce.mu.Unlock()
	if ce.queue.empty() {
		return 0
	}
	return ce.rivals.resting(time.Now())
}

// giveWay leaves what is free to other instances for a moment if it is not this instance's turn. It returns false
// if the store was closed meanwhile; the queue is empty then.
func (ce *cell) giveWay() bool {
	if ce.storeIsAway() {
		return true
	}
	ce.mu.Lock()
	now := time.Now()
	wait := time.Duration(0)
	switch back := ce.rivals.back.Sub(now); {
	case ce.queue.empty():
	case ce.c.lends:
		wait = ce.rivals.giveWay(ce.c.s.heard.Load(), now)
	case back <= mostLate:
		wait = back // it was woken before the end of its rest
	}
	ce.mu.Unlock()
	if wait > 0 && !ce.c.s.sleeps(wait) {
		ce.mu.Lock()
		defer ce.mu.Unlock()
		ce.pumping = false
		return false
	}
	return true
}

// serve asks for those who wait, in their order; zeros says that somebody among them waits
// for none. It returns how long it takes until it is worth asking again.
func (ce *cell) serve(ws []*waiter, zeros bool) (wait time.Duration) {
	c := ce.c
	mine := ce.share(ws)
	if c.lends || c.o.Block > 1 || ce.storeIsAway() {
		return ce.serveOneByOne(ws, mine, zeros)
	}
	asks := make([]backend.Request, 0, len(ws)+1)
	if zeros {
		asks = append(asks, backend.Request{})
	}
	first := len(asks)
	for i, w := range ws[:mine] {
		asks = append(asks, backend.Request{Min: int64(w.n), Max: int64(w.n), IfPrevious: i > 0})
	}
	q, err := c.ask(c.s.ctx, ce.key, asks...)
	if err != nil {
		return ce.serveOneByOne(ws, len(ws), zeros)
	}
	ce.mu.Lock()
	ce.learn(q)
	ce.mu.Unlock()
	served := false
	if zeros && q.granted[0] != backend.Rejected {
		ce.serveZeros(limiter.Granted(0, nil))
		zeros, served = false, true
	}
	for i, w := range ws[:mine] {
		if q.granted[first+i] == backend.Rejected {
			return ce.turnAfter(w.n, zeros)
		}
		if !ce.deliver(w, q.lease(first+i)) {
			q.undo(first + i)
		}
		served = true
	}
	if !served {
		return ce.turnAfter(0, true)
	}
	return ce.afterServing(mine < len(ws))
}

// share is how many of those who wait it is this instance's turn to ask for.
func (ce *cell) share(ws []*waiter) int {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	now := time.Now()
	ce.c.waited.Store(now.UnixNano())
	if ce.c.lends || ce.storeIsAway() {
		return len(ws) // one is asked for at a time, or all are answered at once
	}
	most := ce.rivals.most(now)
	for i, w := range ws {
		if most -= int64(w.n); most < 0 && i > 0 {
			return i
		}
	}
	return len(ws)
}

// turnAfter is how long it takes until it is the turn of this instance to ask for n permits, or
// for the first, if a caller waits for none.
func (ce *cell) turnAfter(n int, zeros bool) time.Duration {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	return ce.turn(ce.until(n, zeros))
}

// turn is how long to wait where permits come after wait. The cell is locked.
func (ce *cell) turn(wait time.Duration) time.Duration {
	now := time.Now()
	if alone := ce.rivals.away(now); wait <= alone && !ce.storeIsAway() {
		return alone
	}
	return ce.rivals.turn(ce.last.def, wait, now)
}

// afterServing is how long it takes until it is worth asking again when all who were asked for
// were served. more: there were others, but they are beyond the share of this instance.
func (ce *cell) afterServing(more bool) time.Duration {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	switch now := time.Now(); {
	case ce.storeIsAway():
		return 0
	case more:
		return max(ce.rivals.away(now), 0)
	case !ce.rivals.has(now) || ce.c.lends:
		return 0
	case ce.last.has(1, now):
		return max(ce.rivals.away(now), 0)
	case ce.last.def != nil:
		return ce.turn(ce.until(1, false))
	default:
		return 0
	}
}

// until is how long n permits take to come back, or the first, if a caller waits for none. The
// cell is locked.
func (ce *cell) until(n int, zeros bool) time.Duration {
	if zeros {
		n = 0
	}
	return ce.last.wait(int64(n), time.Now())
}

// serveOneByOne is serve where one call cannot ask for several in order. The share of this
// instance is the first of ws.
func (ce *cell) serveOneByOne(ws []*waiter, share int, zeros bool) (wait time.Duration) {
	wait = math.MaxInt64
	served := false
	if zeros {
		lease, err := ce.askFor(0)
		if err == nil && answers(lease) {
			ce.serveZeros(lease)
			served = true
		} else {
			wait = ce.pause(lease)
		}
	}
	for _, w := range ws[:share] {
		lease, err := ce.askFor(w.n)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = limiter.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollOften // closed: Close rejects all waiters
		case !answers(lease):
			return min(wait, ce.pause(lease))
		}
		if !ce.deliver(w, lease) {
			drop(lease)
		}
		if served = true; ce.yields() {
			return 0
		}
	}
	if !served {
		return wait
	}
	return ce.afterServing(share < len(ws))
}

// yields reports whether a concurrency limiter that has just got permits leaves what is free
// to other instances.
func (ce *cell) yields() bool {
	if !ce.c.lends || ce.storeIsAway() {
		return false
	}
	ce.mu.Lock()
	defer ce.mu.Unlock()
	return ce.rivals.has(time.Now())
}

// answers tells whether whoever would wait is to have the lease: one that was merely rejected
// waits, or goes on waiting.
func answers(lease limiter.Lease) bool {
	return lease.Acquired() || lease.Reason() == limiter.ReasonUnavailable
}

// drop gives back what nobody was there to have.
func drop(lease limiter.Lease) {
	if lease, ok := lease.Adjust(0); !ok {
		lease.Release()
	}
}

func (ce *cell) askFor(n int) (limiter.Lease, error) {
	return ce.c.take(ce.c.s.ctx, ce.key, n, true)
}

// pause is how long to wait after a rejection.
func (ce *cell) pause(rejected limiter.Lease) time.Duration {
	poll := pollOften
	if ce.c.s.heard.Load() {
		poll = pollRarely
	}
	d, ok := rejected.RetryAfter()
	switch {
	case ok && !ce.c.lends:
		ce.mu.Lock()
		defer ce.mu.Unlock()
		return ce.turn(d)
	case ok && d < poll:
		return d
	}
	return poll/2 + time.Duration(rand.Int64N(int64(poll)))
}

// deliver hands a lease to a waiter, or if that has left to another one for as many permits. It
// returns false if there is none.
func (ce *cell) deliver(w *waiter, lease limiter.Lease) bool {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	if w.queued && !over(w.gone) && ce.queue.answer(w, lease) {
		return true
	}
	if !lease.Acquired() {
		return ce.queue.answer(w, lease)
	}
	next := ce.queue.waitsFor(int64(w.n), ce.c.queueing.Load().order)
	return next != nil && ce.queue.answer(next, lease)
}

func (ce *cell) serveZeros(lease limiter.Lease) {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	for w := range ce.queue.all(limiter.OldestFirst) {
		if w.n == 0 {
			ce.queue.answer(w, lease)
		}
	}
}
