package limiter

// Reconfigure changes the limits of the live limiter. What was taken in the
// window stays taken until it leaves: with u of it and a new limit L there are
// L − u permits, or none. Raising a limit serves who waits at once; who waits for
// more than the new limit comes back rejected.
//
// A new Window or number of segments goes on from where the current segment
// began. What was taken in a segment is then counted in the new segment that
// leaves last among those it could belong to, so no permit comes back too early.
//
// ManualReplenishment cannot change. The error is an [ErrInvalidOptions] or
// [ErrClosed], and then nothing has changed.
func (w *SlidingWindow) Reconfigure(o SlidingWindowOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	now := clock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared.closed {
		return ErrClosed
	}
	if o.ManualReplenishment != w.manual {
		return errManualFixed("SlidingWindowOptions", o.ManualReplenishment)
	}
	w.catchUp(now)
	if o.segment() != w.period || o.SegmentsPerWindow != len(w.taken) {
		w.regrid(w.at(now), o.segment(), o.SegmentsPerWindow)
	}
	relimit(w, now, int64(o.PermitLimit), o.QueueLimit, o.QueueOrder)
	return nil
}

// regrid anchors a grid of other segments at the current line. If its next line
// is past already, that line counts as reached now, once.
func (w *SlidingWindow) regrid(at, period int64, segments int) {
	wasIdle, idleAt := w.used == 0, w.idleSince()
	if wasIdle {
		w.wake(at)
	}
	line := w.line
	if at-w.line >= period {
		line = at
	}
	w.resegment(at, line, period, segments)
	switch {
	case wasIdle:
		w.idleAt = idleAt
	case w.used == 0:
		w.idleAt = at // all that was taken is outside the new window
	}
}

// resegment moves what was taken to the segments of a grid whose current one
// begins at line. What an old segment covered ends with its last instant, and the
// new segment that this is in leaves last among those it could belong to.
func (w *SlidingWindow) resegment(at, line, period int64, segments int) {
	taken := make([]int64, segments)
	for age := range w.taken {
		permits := w.taken[w.back(age)]
		last := w.line - int64(age-1)*w.period - 1
		if age == 0 {
			last = at - 1
			if line == w.line {
				last = at
			}
		}
		i := segmentsBefore(line, last, period)
		if i >= int64(segments) {
			w.used -= permits
			continue
		}
		taken[(int64(segments)-i)%int64(segments)] += permits
	}
	w.taken, w.current = taken, 0
	w.line, w.period = line, period
}

// segmentsBefore is how many segments before the one that begins at line the
// moment is.
func segmentsBefore(line, moment, period int64) int64 {
	if moment >= line {
		return 0
	}
	return (line-moment-1)/period + 1
}
