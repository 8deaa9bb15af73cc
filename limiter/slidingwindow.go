package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A SlidingWindow grants up to PermitLimit in any SegmentsPerWindow consecutive
// segments, and so in any stretch of time that is a segment shorter than Window:
// permits that are taken in a segment come back, all at once, when that segment
// leaves the window. The more segments, the closer it comes to "in any Window", at
// 16 bytes for each segment in which permits were taken; see [SlidingWindowOptions].
//
// It is the limiter for "at most n in a minute, whichever minute", where a
// [FixedWindow] lets twice that through around a window's edge. The zero SlidingWindow is not
// usable and says so; make one with [NewSlidingWindow].
type SlidingWindow struct {
	mu       sync.Mutex
	taken    int64 // permits ever granted, without those that were refunded; wraps around
	left     int64 // of those, the ones that have left the window
	before   int64 // of those, the ones before the current segment
	past     pastSegments
	line     int64 // where the current segment begins; once unused, the line that made it so
	granted  int64
	period   int64 // nanoseconds a segment
	segments int32 // in a window
	manual   bool
	asOf     int64       // manual: the moment up to which time has gone on
	idleAt   int64       // where not 0: since when an unused window has been idle, instead of line
	anchor   int64       // where this grid began
	former   *formerGrid // nil: there was none
	shared   common
}

// NewSlidingWindow returns a limiter of which nothing has been used. The error is
// a [weir.OptionsError].
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	now := moment()
	return &SlidingWindow{
		segments: int32(o.SegmentsPerWindow),
		line:     now,
		anchor:   now,
		asOf:     now,
		period:   o.segment(),
		manual:   o.ManualReplenishment,
		shared:   common{limit: int64(o.PermitLimit), queue: queue{limit: o.QueueLimit, order: o.QueueOrder}},
	}, nil
}

func (o SlidingWindowOptions) segment() int64 { return int64(o.Window) / int64(o.SegmentsPerWindow) }

// TryAcquire takes n permits if they are there now, and nobody waits for them
// who came before. With n == 0 it asks whether any is left.
func (w *SlidingWindow) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, moment(), n, false)
}

// Acquire takes n permits, and waits for them in the queue where there is room.
// With n == 0 it waits until one is there.
func (w *SlidingWindow) Acquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, moment(), n, true)
}

// acquire is both, for a caller who has read the clock.
func (w *SlidingWindow) acquire(ctx context.Context, now int64, n int, wait bool) (Lease, error) {
	ctxErr := ctx.Err()
	w.mu.Lock()
	if ctxErr == nil && w.admits(now, n) {
		l := w.grant(now, n)
		w.mu.Unlock()
		return l, nil
	}
	if wait {
		return join(ctx, ctxErr, w, now, n)
	}
	return refuse(ctx, ctxErr, w, now, n)
}

// admits tells whether n permits can be granted at once.
func (w *SlidingWindow) admits(now int64, n int) bool {
	if !w.shared.inRange(n) || w.shared.closed {
		return false
	}
	w.catchUp(now)
	return mayPass(&w.shared.queue, w.free(), n)
}

// Statistics returns the current figures; those of a closed limiter are its last.
func (w *SlidingWindow) Statistics() Statistics {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shared.closed {
		w.catchUp(now)
	}
	return Statistics{
		AvailablePermits: max(w.free(), 0),
		QueuedPermits:    w.shared.queue.permits,
		SuccessfulLeases: w.granted,
		FailedLeases:     w.shared.failed,
	}
}

// IdleDuration returns for how long the whole window has been unused: since the
// grid line on which its last used segment left, or since it was made.
func (w *SlidingWindow) IdleDuration() (idle time.Duration, ok bool) { return w.idleAsOf(moment()) }

func (w *SlidingWindow) idleAsOf(now int64) (idle time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idleFor(now)
}

func (w *SlidingWindow) idleFor(now int64) (idle time.Duration, ok bool) {
	if !w.shared.closed {
		w.catchUp(now)
	}
	if w.used() > 0 {
		return 0, false
	}
	return time.Duration(max(now-w.idleSince(), 0)), true
}

// closeIfIdle closes the limiter if it has been idle for longer than that.
func (w *SlidingWindow) closeIfIdle(longer, now int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if idle, ok := w.idleFor(now); !ok || int64(idle) <= longer {
		return false
	}
	if !w.shared.closed {
		closeEngine(w)
	}
	return true
}

func (w *SlidingWindow) idleSince() int64 {
	if w.idleAt != 0 {
		return w.idleAt
	}
	return w.line
}

// TryReplenish catches up with every whole segment that has gone by and returns
// true. On a limiter that replenishes by itself, and on a closed one, it does
// nothing and returns false.
func (w *SlidingWindow) TryReplenish() bool {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.manual || w.shared.closed {
		return false
	}
	w.asOf = max(w.asOf, now)
	w.catchUp(now)
	return true
}

// ReplenishmentPeriod is the length of a segment.
func (w *SlidingWindow) ReplenishmentPeriod() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.period)
}

// AutoReplenishing tells whether the limiter replenishes by itself.
func (w *SlidingWindow) AutoReplenishing() bool { return !w.manual }

// Close closes the limiter: who waits comes back rejected, later calls return
// [ErrClosed]. It returns nil, and may be called again.
func (w *SlidingWindow) Close() error {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shared.closed {
		w.catchUp(now)
		closeEngine(w)
	}
	return nil
}

func (w *SlidingWindow) lock()           { w.mu.Lock() }
func (w *SlidingWindow) unlock()         { w.mu.Unlock() }
func (w *SlidingWindow) view() *common   { return &w.shared }
func (w *SlidingWindow) common() *common { return &w.shared }
func (w *SlidingWindow) countFailed()    { w.shared.failed++ }
func (w *SlidingWindow) free() int64     { return w.shared.limit - w.used() }

// used is how many permits were taken in the window; above the limit after that was lowered.
func (w *SlidingWindow) used() int64 { return w.taken - w.left }

func (w *SlidingWindow) window() int64 { return int64(w.segments) * w.period }

// at is the moment up to which time has gone on for this window.
func (w *SlidingWindow) at(now int64) int64 {
	if w.manual {
		return w.asOf
	}
	return now
}

func (w *SlidingWindow) catchUp(now int64) {
	if uint64(now-w.line) >= uint64(w.period) { // or now is before the line
		w.leaveSegment(now)
	}
}

// leaveSegment is catchUp for a moment that may be outside of the current segment.
func (w *SlidingWindow) leaveSegment(now int64) {
	at := w.at(now)
	elapsed := at - w.line
	switch {
	case otherClock(elapsed):
		w.shift(elapsed)
	case elapsed < w.period:
	case w.shared.queue.empty():
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
}

// serveLines is [bucket.serveLines] for a window.
func (w *SlidingWindow) serveLines(now int64) {
	for !w.shared.queue.empty() {
		next := max(w.freeAt(w.shared.queue.needs()), saturate.Add(w.line, w.period))
		if next > now {
			return
		}
		w.slide(next)
		serveWaiters(w, w.line)
	}
}

// slide moves the window on to the last grid line that is not after a moment, or to the one before that on which
// it is unused.
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
	if w.before != w.taken {
		w.past.push(w.line, w.taken)
		w.before = w.taken
	}
	w.line = line
	if w.left = w.past.expire(line, window, w.left); w.left == w.taken {
		w.becomeUnused(newest + window)
	}
}

// becomeUnused makes the window an unused one since a grid line.
func (w *SlidingWindow) becomeUnused(line int64) {
	w.line = line
	w.left, w.before = w.taken, w.taken
	w.past = pastSegments{}
}

// lineAt is the last grid line that is not after a moment in the current segment or later.
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

// newest is the beginning of the newest segment in which permits were taken. The window is not unused.
func (w *SlidingWindow) newest() int64 {
	if w.before != w.taken {
		return w.line
	}
	return w.past.newest().line
}

// pastUsed is how many permits were taken in the window before the current segment.
func (w *SlidingWindow) pastUsed() int64 { return w.before - w.left }

// grant charges the permits to the current segment, by whose beginning a refund
// finds it again.
func (w *SlidingWindow) grant(now int64, n int) Lease {
	w.granted++
	if n > 0 {
		if w.used() == 0 {
			w.wake(w.at(now))
		}
		w.taken += int64(n)
	}
	return Lease{owner: w, n: n, tag: w.line}
}

// wake ends the idleness of an unused window: the grid has gone on meanwhile.
func (w *SlidingWindow) wake(at int64) {
	w.line, w.idleAt = w.lineAt(at), 0
}

// when is in real time, also for a window that is replenished by hand; that one
// needs no timer.
func (w *SlidingWindow) when(n int) int64 {
	if w.manual {
		return never
	}
	return w.freeAt(int64(n))
}

// freeAt is the grid line on which n permits are free if nobody takes any.
func (w *SlidingWindow) freeAt(n int64) int64 {
	if over := n - w.free(); over > 0 {
		return w.leaves(over)
	}
	return w.line
}

// leaves is the grid line on which the oldest permits in the window, as many as that, have left it.
func (w *SlidingWindow) leaves(permits int64) int64 {
	return saturate.Add(w.segmentOf(permits), w.window())
}

// segmentOf returns the beginning of the segment that was the first to have so many permits taken in the window.
func (w *SlidingWindow) segmentOf(permits int64) int64 {
	if w.pastUsed() < permits {
		return w.line
	}
	return w.past.at(w.past.holding(0, permits, w.left)).line
}

func (w *SlidingWindow) retryAfter(now int64, n int) time.Duration {
	if ahead, ok := w.ahead(n); ok {
		return max(until(w.freeAt(ahead+weight(n)), now), 1)
	}
	return waitFor(now, w.line, w.forecast(n), w.period)
}

// Permits of a window are spent, not lent.
func (w *SlidingWindow) release(int, int64) {}

// refund gives back what was taken in the segment that began at tag, as long as
// that is in the window.
func (w *SlidingWindow) refund(n int, tag int64) {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared.closed {
		return
	}
	w.catchUp(now)
	w.granted--
	w.giveBack(int64(n), tag)
	if !w.shared.queue.empty() {
		serve(w, now)
	}
}

func (w *SlidingWindow) giveBack(n, tag int64) {
	age, ok := w.ageOf(tag)
	switch {
	case !ok:
		return
	case age == 0:
		n = min(n, w.taken-w.before)
	default:
		n = w.past.giveBack(n, w.line-age, w.left)
		w.before -= n
	}
	w.taken -= n
	if w.taken == w.before {
		w.past.trim(w.left)
	}
}

// ageOf returns how long before the current segment the one began in which permits are now that were charged to the
// segment that began at tag. ok is false where that has left the window.
func (w *SlidingWindow) ageOf(tag int64) (age int64, ok bool) {
	segments := segmentsBefore(w.line, w.former.momentOf(tag), w.period)
	if segments >= int64(w.segments) || w.former != nil && tag < w.former.oldest {
		return 0, false
	}
	return segments * w.period, true
}
