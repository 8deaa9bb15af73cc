package limiter

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A SlidingWindow grants up to PermitLimit in any SegmentsPerWindow consecutive segments, and so in any stretch of time
// as long as Window minus one segment. Permits that are taken in a segment come back, all at once, when that segment
// leaves the window. The more segments there are, the closer it comes to "in any Window", at 16 bytes for each segment
// in which permits were taken; see [SlidingWindowOptions].
//
// Use it for "at most n in a minute, whichever minute". A [FixedWindow] lets twice that through around a window's edge.
// The zero SlidingWindow is not usable: TryAcquire and Acquire return an error. Make one with [NewSlidingWindow].
type SlidingWindow struct {
	taken       int64 // permits ever taken, without refunded ones; wraps around
	expired     int64 // the part of taken that has left the window
	takenBefore int64 // the part of taken before the current segment
	past        pastSegments
	line        int64 // where the current segment begins; in an unused window, the line on which it became unused
	granted     int64
	period      int64 // nanoseconds in a segment
	segments    int32 // in a window
	manual      bool
	asOf        int64       // manual: the moment of the last TryReplenish
	idleAt      int64       // if not 0, the moment at which an unused window became idle; otherwise that is line
	anchor      int64       // where this grid began
	former      *formerGrid // nil: there was no other grid
	cuts        *windowCuts // nil: no Charge has given back permits of what was then the current segment
	lockedCommon
}

// NewSlidingWindow returns an unused limiter. The error is a [weir.OptionsError].
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	now := moment()
	return &SlidingWindow{
		segments:     int32(o.SegmentsPerWindow),
		line:         now,
		anchor:       now,
		asOf:         now,
		period:       o.segment(),
		manual:       o.ManualReplenishment,
		lockedCommon: newLockedCommon(o.PermitLimit, o.QueueLimit, o.QueueOrder),
	}, nil
}

// segment returns the length of a segment.
func (o SlidingWindowOptions) segment() int64 { return int64(o.Window) / int64(o.SegmentsPerWindow) }

// TryAcquire takes n permits if they are free and no earlier caller waits for them. If n is 0, it reports whether a
// permit is free, and takes none.
func (w *SlidingWindow) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, moment(), n, false)
}

// Acquire takes n permits, and waits for them in the queue if there is room. If n is 0, it waits until a permit is
// free, and takes none.
func (w *SlidingWindow) Acquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, moment(), n, true)
}

// acquire is TryAcquire and Acquire for a caller that has read the clock.
func (w *SlidingWindow) acquire(ctx context.Context, now int64, n int, wait bool) (Lease, error) {
	ctxErr := ctx.Err()
	w.mu.Lock()
	if ctxErr == nil && w.admits(now, n) {
		l := w.grant(now, n)
		w.mu.Unlock()
		return l, nil
	}
	return refuse(ctx, ctxErr, w, now, n, wait)
}

// admits reports whether n permits can be granted at once.
func (w *SlidingWindow) admits(now int64, n int) bool {
	if !w.inRange(n) || w.closed {
		return false
	}
	w.catchUp(now)
	return mayPass(&w.queue, w.free(), n)
}

// Statistics returns the current figures, or the last ones of a closed limiter.
func (w *SlidingWindow) Statistics() Statistics { return statisticsOf(w) }

func (w *SlidingWindow) counts() (granted, failed int64) { return w.granted, w.failed }

// IdleDuration returns for how long the whole window has been unused: since the grid line on which its last used
// segment left, or since it was made.
func (w *SlidingWindow) IdleDuration() (idle time.Duration, ok bool) { return idleAsOf(w, moment()) }

func (w *SlidingWindow) idleFor(now int64) (idle time.Duration, ok bool) {
	if !w.closed {
		w.catchUp(now)
	}
	if w.used() > 0 {
		return 0, false
	}
	return time.Duration(max(now-w.idleSince(), 0)), true
}

// idleSince returns since when an unused window has been idle.
func (w *SlidingWindow) idleSince() int64 {
	if w.idleAt != 0 {
		return w.idleAt
	}
	return w.line
}

// TryReplenish catches up with every whole segment that has passed and returns true. If the limiter replenishes by
// itself or is closed, it does nothing and returns false.
func (w *SlidingWindow) TryReplenish() bool {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.manual || w.closed {
		return false
	}
	w.asOf = max(w.asOf, now)
	w.catchUp(now)
	return true
}

// ReplenishmentPeriod returns the length of a segment.
func (w *SlidingWindow) ReplenishmentPeriod() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.period)
}

// AutoReplenishing reports whether the limiter replenishes by itself.
func (w *SlidingWindow) AutoReplenishing() bool { return !w.manual }

// Close closes the limiter: waiters are rejected, and later calls return [ErrClosed]. It returns nil, and can be called
// again.
func (w *SlidingWindow) Close() error { return closeClocked(w) }

func (w *SlidingWindow) close() { closeEngine(w) }

func (w *SlidingWindow) free() int64 { return w.limit - w.used() }

// used returns how many permits were taken in the window; that can be above the limit, after the limit was lowered or a
// lease was adjusted.
func (w *SlidingWindow) used() int64 { return w.taken - w.expired }

// window returns the length of the window.
func (w *SlidingWindow) window() int64 { return int64(w.segments) * w.period }

// effectiveNow returns the moment up to which time has passed for this window: now or, if it is replenished by hand,
// the moment of the last TryReplenish.
func (w *SlidingWindow) effectiveNow(now int64) int64 {
	if w.manual {
		return w.asOf
	}
	return now
}

// catchUp brings the window to the moment now, and serves the queue if permits came back.
func (w *SlidingWindow) catchUp(now int64) {
	if uint64(now-w.line) >= uint64(w.period) { // also true if now is before the line
		w.leaveSegment(now)
	}
}

// leaveSegment is catchUp for a moment that can be outside of the current segment.
func (w *SlidingWindow) leaveSegment(now int64) {
	at := w.effectiveNow(now)
	elapsed := at - w.line
	switch {
	case otherClock(elapsed):
		w.shift(elapsed)
	case elapsed < w.period:
	case w.queue.empty():
		w.slide(at)
	default:
		if !w.manual {
			w.serveLines(now)
		}
		w.slide(at)
		serve(w, now)
	}
}

// shift takes the window to another clock.
func (w *SlidingWindow) shift(by int64) {
	w.line += by
	w.past.shift(by)
	w.cuts = nil
}

// serveLines is [bucket.serveLines] for a window.
func (w *SlidingWindow) serveLines(now int64) {
	for !w.queue.empty() {
		next := max(w.freeAt(w.queue.needs()), saturate.Add(w.line, w.period))
		if next > now {
			return
		}
		w.slide(next)
		serveWaiters(w, w.line)
	}
}

// slide moves the window on to the last grid line up to the moment at. If the last permits leave the window on an
// earlier line, the window stops there and becomes unused.
func (w *SlidingWindow) slide(at int64) {
	window := w.window()
	switch {
	case w.used() == 0:
		return
	case at-w.line >= window:
		w.becomeUnused(w.newest() + window)
		return
	}
	line := w.lineAt(at)
	if line == w.line {
		return
	}
	newest := w.newest()
	if w.takenBefore != w.taken {
		w.past.push(w.line, w.taken)
		w.takenBefore = w.taken
	}
	w.line = line
	if w.expired = w.past.expire(line, window, w.expired); w.expired == w.taken {
		w.becomeUnused(newest + window)
	}
}

// becomeUnused empties a window whose last permits left it on that grid line.
func (w *SlidingWindow) becomeUnused(line int64) {
	w.line = line
	w.expired, w.takenBefore = w.taken, w.taken
	w.past, w.cuts = pastSegments{}, nil
}

// lineAt returns the last grid line up to the moment at, which is in the current segment or later.
func (w *SlidingWindow) lineAt(at int64) int64 {
	elapsed := at - w.line
	switch {
	case elapsed < w.period:
		return w.line
	case elapsed-w.period < w.period:
		return w.line + w.period // without a division
	}
	return at - elapsed%w.period
}

// newest returns the beginning of the newest segment in which permits were taken. There is one.
func (w *SlidingWindow) newest() int64 {
	if w.takenBefore != w.taken {
		return w.line
	}
	return w.past.newest().line
}

// pastUsed returns how many permits were taken in the window before the current segment.
func (w *SlidingWindow) pastUsed() int64 { return w.takenBefore - w.expired }

// grant charges the permits to the current segment. Its beginning is the tag, by which a refund finds it.
func (w *SlidingWindow) grant(now int64, n int) Lease {
	w.granted++
	if n > 0 {
		if w.used() == 0 {
			w.endIdleness(w.effectiveNow(now))
		}
		w.taken += int64(n)
	}
	if w.cuts != nil && w.cuts.line == w.line {
		return Lease{owner: w.afterCut(), n: n, tag: w.line}
	}
	return Lease{owner: w, n: n, tag: w.line}
}

// endIdleness ends the idleness of an unused window: its line becomes the last one that is not after at.
func (w *SlidingWindow) endIdleness(at int64) {
	w.line, w.idleAt = w.lineAt(at), 0
}
