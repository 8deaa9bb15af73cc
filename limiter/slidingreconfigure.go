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
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or
// [ErrClosed], and then nothing has changed.
func (w *SlidingWindow) Reconfigure(o SlidingWindowOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.shared.reconfigurable(); err != nil {
		return err
	}
	if o.ManualReplenishment != w.manual {
		return errManualFixed(o.ManualReplenishment)
	}
	w.catchUp(now)
	if o.segment() != w.period || o.SegmentsPerWindow != int(w.segments) {
		w.regrid(w.at(now), o.segment(), o.SegmentsPerWindow)
	}
	relimit(w, now, int64(o.PermitLimit), o.QueueLimit, o.QueueOrder)
	return nil
}

// regrid anchors a grid of other segments at the current line. If its next line
// is past already, that line counts as reached now, once.
func (w *SlidingWindow) regrid(at, period int64, segments int) {
	wasIdle, idleAt := w.used() == 0, w.idleSince()
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
	case w.used() == 0:
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
	if window := w.window() - w.period; w.line-w.anchor > window {
		oldest = w.line - window
	}
	w.former = &formerGrid{oldest: oldest, line: w.line, period: w.period, last: current}
	old := w.past
	if w.before != w.taken {
		old.push(w.line, w.taken)
	}
	w.past, w.before = pastSegments{}, w.left
	for i := range int(old.count) {
		s := old.at(i)
		age := segmentsBefore(line, w.former.momentOf(s.line), period)
		switch {
		case age >= int64(segments):
			w.left, w.before = s.taken, s.taken
		case age > 0:
			w.past.join(line-age*period, s.taken)
			w.before = s.taken
		}
	}
	w.anchor = line
	w.line, w.period, w.segments = line, period, int32(segments)
}

// A formerGrid is what refunds have to know of the grid before the last change of
// it.
type formerGrid struct {
	oldest       int64 // what was taken before then had left the window, or is not to be found any more
	line, period int64 // of its current segment
	last         int64 // the last instant of that
}

// momentOf is a moment in the segment of today's grid in which permits are that
// were taken in the segment that began at line. g may be nil.
func (g *formerGrid) momentOf(line int64) int64 {
	switch {
	case g == nil || line > g.line:
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
		Window:              time.Duration(w.window()),
		SegmentsPerWindow:   int(w.segments),
		QueueLimit:          w.shared.queue.limit,
		QueueOrder:          w.shared.queue.order,
		ManualReplenishment: w.manual,
	}
}
