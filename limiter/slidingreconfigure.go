package limiter

import (
	"time"

	"github.com/weir-go/weir/rate"
)

// Reconfigure changes the limits of the live limiter. Permits that were taken in the window stay taken until they leave
// it: if u permits are taken and the new limit is L, max(L − u, 0) are free. Raising a limit serves waiters at once;
// waiters for more than the new limit are rejected.
//
// If Window or SegmentsPerWindow changes, the new current segment begins where the old one began, or now if it would be
// over. Permits that were taken in a segment are then counted in the last new segment that they could belong to, so no
// permit comes back too early.
//
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (w *SlidingWindow) Reconfigure(options Options) error {
	l, err := limitsOf(rate.SlidingWindow, options)
	if err != nil {
		return err
	}
	o := OptionsOf(l).(SlidingWindowOptions)
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.changeable(); err != nil {
		return err
	}
	if o.ManualReplenishment != w.manual {
		return manualFixedError(o.ManualReplenishment)
	}
	w.catchUp(now)
	if o.segment() != w.period || o.SegmentsPerWindow != int(w.segments) {
		w.changeGrid(w.effectiveNow(now), o.segment(), o.SegmentsPerWindow)
	}
	setLimits(w, now, int64(o.PermitLimit), o.QueueLimit, o.QueueOrder)
	return nil
}

// changeGrid begins a grid of other segments at the current line. If the next line of the new grid lies in the past,
// the new grid begins now instead.
func (w *SlidingWindow) changeGrid(at, period int64, segments int) {
	wasIdle, idleAt := w.used() == 0, w.idleSince()
	if wasIdle {
		w.endIdleness(at)
	}
	line := w.line
	if at-w.line >= period {
		line = at
	}
	w.moveSegments(at, line, period, segments)
	switch {
	case wasIdle:
		w.idleAt = idleAt
	case w.used() == 0:
		w.idleAt = at // all that was taken is outside the new window
	}
}

// moveSegments moves the permits to the segments of a new grid, whose current segment begins at line. The permits of an
// old segment go to the last of the new segments that overlap it, so that none comes back too early.
func (w *SlidingWindow) moveSegments(at, line, period int64, segments int) {
	last := at - 1 // the last instant of the old current segment, if a new segment begins now
	if line == w.line {
		last = at
	}
	oldest := w.anchor
	if window := w.window() - w.period; w.line-w.anchor > window {
		oldest = w.line - window
	}
	w.former = &formerGrid{oldest: oldest, line: w.line, period: w.period, last: last}
	old := w.past
	if w.takenBefore != w.taken {
		old.push(w.line, w.taken)
	}
	w.past, w.takenBefore = pastSegments{}, w.expired
	for i := range int(old.count) {
		s := old.get(i)
		age := segmentsBefore(line, w.former.momentOf(s.line), period)
		switch {
		case age >= int64(segments):
			w.expired, w.takenBefore = s.taken, s.taken
		case age > 0:
			w.past.merge(line-age*period, s.taken)
			w.takenBefore = s.taken
		}
	}
	w.anchor = line
	w.line, w.period, w.segments = line, period, int32(segments)
}

// A formerGrid is what refunds need of the grid before its last change.
type formerGrid struct {
	oldest       int64 // permits with an older tag cannot be refunded
	line, period int64 // of its current segment
	last         int64 // the last instant of its current segment
}

// momentOf returns the moment at which permits with the tag line count as taken: the last instant of their segment in
// the former grid, or line itself if they were taken after the change. g can be nil.
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

// segmentsBefore returns the age of a moment in segments: 0 if it is in the segment that begins at line or later, 1 if
// it is in the segment before that, and so on.
func segmentsBefore(line, moment, period int64) int64 {
	if moment >= line {
		return 0
	}
	return (line-moment-1)/period + 1
}

// Limits returns the limits in force.
func (w *SlidingWindow) Limits() rate.Limits { return w.Options().Limits() }

// Options returns the options in force.
func (w *SlidingWindow) Options() SlidingWindowOptions {
	w.mu.Lock()
	defer w.mu.Unlock()
	return SlidingWindowOptions{
		PermitLimit:         int(w.limit),
		Window:              time.Duration(w.window()),
		SegmentsPerWindow:   int(w.segments),
		QueueLimit:          w.queue.limit,
		QueueOrder:          w.queue.order,
		ManualReplenishment: w.manual,
	}
}
