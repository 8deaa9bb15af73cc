package limiter

// Permits of a window are spent, not lent.
func (w *SlidingWindow) release(int, int64) {}

func (w *SlidingWindow) refund(n int, tag int64) { w.undo(int64(n), tag, 0) }

// undo gives back what was taken in the segment that began at tag, if it is still in the window. cuts is how many cuts
// there were at the grant.
func (w *SlidingWindow) undo(n, tag, cuts int64) {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.catchUp(now)
	w.granted--
	w.giveBack(n, tag, cuts)
	if !w.queue.empty() {
		serve(w, now)
	}
}

// giveBack takes n permits of a lease out of their segment.
func (w *SlidingWindow) giveBack(n, tag, cuts int64) {
	age, ok := w.ageOf(tag)
	if !ok {
		return
	}
	if n = min(n, w.leftOf(tag, cuts)); age == 0 {
		n = min(n, w.taken-w.takenBefore)
	} else {
		n = w.past.giveBack(n, w.line-age, w.expired)
		w.takenBefore -= n
	}
	w.taken -= n
	w.lowerCuts(tag, cuts, n)
	if w.taken == w.takenBefore {
		w.past.trim(w.expired)
	}
}

// giveBackUnleased gives back n of the permits that are in the window, and serves the queue. While more are taken than
// the limit, those of the newest segments go first, and then those of the oldest.
//
// With a slot for each request that runs, a request that is rejected takes one beyond the limit and gives it back: the
// others keep their age, so that slots that were lost end at their time. A request that has run gives back the oldest, so
// that the slots of requests that still run do not end.
func (w *SlidingWindow) giveBackUnleased(now, n int64) {
	owed := min(n, max(-w.free(), 0))
	inCurrent := min(owed, w.taken-w.takenBefore)
	if inPast := owed - inCurrent; inPast > 0 {
		w.past.giveBackNewest(inPast, w.expired)
		w.taken -= inPast
		w.takenBefore -= inPast
	}
	if oldest := min(n-owed, w.pastUsed()); oldest > 0 {
		w.expired += oldest
		w.past.dropExpired(w.expired)
		inCurrent += n - owed - oldest
	} else {
		inCurrent += n - owed
	}
	if inCurrent > 0 {
		w.taken -= inCurrent
		w.cut()
	}
	if w.taken == w.takenBefore {
		w.past.trim(w.expired)
	}
	if !w.queue.empty() {
		serve(w, now)
	}
}

// ageOf finds the segment that now has the permits of a lease with that tag. It returns how long before the current
// segment that segment began. ok is false if that segment has left the window.
func (w *SlidingWindow) ageOf(tag int64) (age int64, ok bool) {
	segments := segmentsBefore(w.line, w.former.momentOf(tag), w.period)
	if segments >= int64(w.segments) || w.former != nil && tag < w.former.oldest {
		return 0, false
	}
	return segments * w.period, true
}

func (w *SlidingWindow) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return w.adjustCost(int64(n), int64(n), 0, cost, tag)
}

// A windowCharge is the owner of a grant of a sliding window that was adjusted, or that was made after a cut.
type windowCharge struct {
	window *SlidingWindow
	held   int64 // how many permits of the grant are in the window; or more, and then all are
	cuts   int64 // how many cuts there were at the grant
}

func (c *windowCharge) release(int, int64) {}

func (c *windowCharge) refund(n int, tag int64) {
	c.window.undo(min(int64(n), c.held), tag, c.cuts)
}

func (c *windowCharge) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return c.window.adjustCost(int64(n), min(int64(n), c.held), c.cuts, cost, tag)
}

// adjustCost changes what a grant of n permits has cost. held is how many of its permits are in the window. If cost is
// above n, the additional permits are charged to the current segment. The adjusted lease has one tag for all its
// permits: that of the grant, as long as its segment is in the window. A refund then takes all out of that older
// segment, so permits come back too late rather than too early.
func (w *SlidingWindow) adjustCost(n, held, cuts int64, cost int, tag int64) (owner, int64, bool) {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w, tag, true
	}
	w.catchUp(now)
	if _, ok := w.ageOf(tag); !ok {
		held = 0
	}
	held = min(held, w.leftOf(tag, cuts))
	if int64(cost) < n {
		back := min(n-int64(cost), held)
		w.giveBack(back, tag, cuts)
		if !w.queue.empty() {
			serve(w, now)
		}
		return &windowCharge{w, held - back, cuts}, tag, true
	}
	if held == 0 {
		cuts = w.cutsMade()
	}
	more := w.charge(now, cost-int(n))
	if held == 0 {
		tag = w.line
	}
	return &windowCharge{w, held + more, cuts}, tag, true
}

// charge charges n permits to the current segment, even if fewer are free.
func (w *SlidingWindow) charge(now int64, n int) (taken int64) {
	if n == 0 {
		return 0
	}
	if w.used() == 0 {
		w.endIdleness(w.effectiveNow(now))
	}
	taken = min(int64(n), max(maxDebt-w.used(), 0))
	w.taken += taken
	if !w.queue.empty() {
		arm(w, now)
	}
	return taken
}
