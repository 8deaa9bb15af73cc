package limiter

import "time"

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
	if err := w.shared.reconfigurable(); err != nil {
		return err
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
	current := at - 1 // the last instant of the current segment, if another one begins now
	if line == w.line {
		current = at
	}
	oldest := w.anchor
	if window := int64(len(w.taken)-1) * w.period; w.line-w.anchor > window {
		oldest = w.line - window
	}
	w.before = formerGrid{oldest: oldest, line: w.line, period: w.period, last: current}
	w.anchor = line
	taken := make([]int64, segments)
	for age := range w.taken {
		permits := w.taken[w.back(age)]
		i := segmentsBefore(line, w.before.momentOf(w.line-int64(age)*w.period), period)
		if i >= int64(segments) {
			w.used -= permits
			continue
		}
		taken[(int64(segments)-i)%int64(segments)] += permits
	}
	w.taken, w.current = taken, 0
	w.line, w.period = line, period
}

// A formerGrid is what refunds have to know of the grid before the last change of
// it. The zero formerGrid has been none.
type formerGrid struct {
	oldest       int64 // what was taken before then had left the window, or is not to be found any more
	line, period int64 // of its current segment
	last         int64 // the last instant of that
}

// momentOf is a moment in the segment of today's grid in which permits are that
// were taken in the segment that began at line.
func (g formerGrid) momentOf(line int64) int64 {
	switch {
	case g.period == 0 || line > g.line:
		return line
	case line == g.line:
		return g.last
	default:
		return line + g.period - 1
	}
}

// segmentsBefore is how many segments before the one that begins at line the
// moment is.
func segmentsBefore(line, moment, period int64) int64 {
	if moment >= line {
		return 0
	}
	return (line-moment-1)/period + 1
}

// Options returns the options in force.
func (w *SlidingWindow) Options() SlidingWindowOptions {
	w.mu.Lock()
	defer w.mu.Unlock()
	return SlidingWindowOptions{
		PermitLimit:         int(w.shared.limit),
		Window:              time.Duration(w.period * int64(len(w.taken))),
		SegmentsPerWindow:   len(w.taken),
		QueueLimit:          w.shared.queue.limit,
		QueueOrder:          w.shared.queue.order,
		ManualReplenishment: w.manual,
	}
}
