package limiter

import "time"

// serve grants what can be granted to waiters, and sets the timer for the next moment at which that can change.
func serve(e engine, now int64) {
	serveWaiters(e, now)
	arm(e, now)
}

// serveWaiters is serve without the timer. A caller that catches up with several lines calls it on each of them.
func serveWaiters(e engine, now int64) {
	q := &e.own().queue
	if q.zeros > 0 && e.free() > 0 {
		serveZeros(e, now)
	}
	for w := q.first(); w != nil && e.free() >= weight(w.n); w = q.first() {
		q.remove(w)
		w.answer(e.grant(now, w.n))
	}
}

// serveZeros grants the requests for 0 permits. They take nothing, so their place in the queue does not matter.
func serveZeros(e engine, now int64) {
	q := &e.own().queue
	for w := q.oldest; w != nil && q.zeros > 0; {
		next := w.newer
		if w.n == 0 {
			q.remove(w)
			w.answer(e.grant(now, 0))
		}
		w = next
	}
}

// arm sets the timer for the next moment at which a waiter can be served, or stops it if there is none.
func arm(e engine, now int64) {
	c := e.own()
	due := int64(never)
	if w := c.queue.first(); w != nil {
		due = e.timerFor(max(w.n, 1))
		if c.queue.zeros > 0 {
			due = min(due, e.timerFor(1))
		}
	}
	switch {
	case due == never:
		disarm(c)
	case c.timer == nil:
		c.timer = time.AfterFunc(until(due, now), func() { tick(e) })
		c.armed = due
	case c.armed != due:
		c.timer.Reset(until(due, now))
		c.armed = due
	}
}

// disarm stops the timer.
func disarm(c *common) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// tick is the function of the timer. If the timer was stopped too late, tick does nothing.
func tick(e engine) {
	e.lock()
	defer e.unlock()
	if c := e.view(); c.closed || c.timer == nil {
		return
	}
	e.own().armed = never
	now := moment()
	e.catchUp(now)
	arm(e, now)
}
