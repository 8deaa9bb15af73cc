package limiter

// Permits of a window are spent, not lent.
func (w *SlidingWindow) release(int, int64) {}

// refund gives back what was taken in the segment that began at tag, if it is still in the window.
func (w *SlidingWindow) refund(n int, tag int64) {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.catchUp(now)
	w.granted--
	w.giveBack(int64(n), tag)
	if !w.queue.empty() {
		serve(w, now)
	}
}

// giveBack takes n permits of a lease out of their segment.
func (w *SlidingWindow) giveBack(n, tag int64) {
	age, ok := w.ageOf(tag)
	switch {
	case !ok:
		return
	case age == 0:
		n = min(n, w.taken-w.takenBefore)
	default:
		n = w.past.giveBack(n, w.line-age, w.expired)
		w.takenBefore -= n
	}
	w.taken -= n
	if w.taken == w.takenBefore {
		w.past.trim(w.expired)
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
	return w.adjustCost(n, int64(n), cost, tag)
}

// A windowCharge is the owner of a grant of a sliding window that was adjusted.
type windowCharge struct {
	window *SlidingWindow
	held   int64 // how many permits of the grant are in the window
}

func (c *windowCharge) release(int, int64) {}

func (c *windowCharge) refund(n int, tag int64) {
	c.window.refund(int(min(int64(n), c.held)), tag)
}

func (c *windowCharge) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return c.window.adjustCost(n, c.held, cost, tag)
}

// adjustCost changes what a grant of n permits has cost. held is how many of its permits are in the window. If cost is
// above n, the additional permits are charged to the current segment. The adjusted lease has one tag for all its
// permits: that of the grant, as long as its segment is in the window. A refund then takes all out of that older
// segment, so permits come back too late rather than too early.
func (w *SlidingWindow) adjustCost(n int, held int64, cost int, tag int64) (owner, int64, bool) {
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
	if cost < n {
		back := min(int64(n-cost), held)
		w.giveBack(back, tag)
		if !w.queue.empty() {
			serve(w, now)
		}
		return &windowCharge{w, held - back}, tag, true
	}
	more := w.charge(now, int64(cost-n))
	if held == 0 {
		tag = w.line
	}
	return &windowCharge{w, held + more}, tag, true
}

// charge charges n permits to the current segment, even if fewer are free.
func (w *SlidingWindow) charge(now, n int64) (taken int64) {
	if n > 0 && w.used() == 0 {
		w.endIdleness(w.effectiveNow(now))
	}
	taken = min(n, max(maxDebt-w.used(), 0))
	w.taken += taken
	if !w.queue.empty() {
		arm(w, now)
	}
	return taken
}
