package limiter

import (
	"context"
	"sync"
	"time"
)

// A SlidingWindow grants up to PermitLimit in any SegmentsPerWindow consecutive
// segments, and so in any stretch of time that is a segment shorter than Window:
// permits that are taken in a segment come back, all at once, when that segment
// leaves the window. The more segments, the closer it comes to "in any Window", at
// 8 bytes each.
//
// It is the limiter for "at most n in a minute, whichever minute", where a
// [FixedWindow] lets twice that through around a window's edge. The zero SlidingWindow is not
// usable and says so; make one with [NewSlidingWindow].
type SlidingWindow struct {
	mu      sync.Mutex
	taken   []int64 // by segment: a ring, in which the segment after current is the oldest
	current int
	used    int64 // the sum of taken; above the limit after that was lowered
	line    int64 // where the current segment begins; once unused, the line that made it so
	granted int64
	period  int64 // nanoseconds a segment
	manual  bool
	asOf    int64 // manual: the moment up to which time has gone on
	idleAt  int64 // where not 0: since when an unused window has been idle, instead of line
	anchor  int64 // where this grid began
	before  formerGrid
	shared  common
}

// NewSlidingWindow returns a limiter of which nothing has been used. The error is
// an [ErrInvalidOptions].
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	now := clock()
	return &SlidingWindow{
		taken:  make([]int64, o.SegmentsPerWindow),
		line:   now,
		anchor: now,
		before: formerGrid{oldest: now},
		asOf:   now,
		period: o.segment(),
		manual: o.ManualReplenishment,
		shared: common{limit: int64(o.PermitLimit), queue: queue{limit: o.QueueLimit, order: o.QueueOrder}},
	}, nil
}

func (o SlidingWindowOptions) segment() int64 { return int64(o.Window) / int64(o.SegmentsPerWindow) }

// TryAcquire takes n permits if they are there now, and nobody waits for them
// who came before. With n == 0 it asks whether any is left.
func (w *SlidingWindow) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, clock(), n, false)
}

// Acquire takes n permits, and waits for them in the queue where there is room.
// With n == 0 it waits until one is there.
func (w *SlidingWindow) Acquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, clock(), n, true)
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
	now := clock()
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
func (w *SlidingWindow) IdleDuration() (idle time.Duration, ok bool) { return w.idleAsOf(clock()) }

func (w *SlidingWindow) idleAsOf(now int64) (idle time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idleFor(now)
}

func (w *SlidingWindow) idleFor(now int64) (idle time.Duration, ok bool) {
	if !w.shared.closed {
		w.catchUp(now)
	}
	if w.used > 0 {
		return 0, false
	}
	return time.Duration(max(now-w.idleSince(), 0)), true
}

// retire closes the limiter if it has been idle for longer than that.
func (w *SlidingWindow) retire(longer, now int64) bool {
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
	now := clock()
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
	now := clock()
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
func (w *SlidingWindow) free() int64     { return w.shared.limit - w.used }

// at is the moment up to which time has gone on for this window.
func (w *SlidingWindow) at(now int64) int64 {
	if w.manual {
		return w.asOf
	}
	return now
}

func (w *SlidingWindow) catchUp(now int64) {
	elapsed := w.at(now) - w.line
	if w.used == 0 || elapsed < w.period {
		if elapsed < otherClock {
			w.line += elapsed
		}
		return
	}
	lines := elapsed / w.period
	if w.shared.queue.empty() {
		w.slide(lines)
		return
	}
	if !w.manual {
		lines = w.serveLines(lines)
	}
	w.slide(lines)
	serve(w, now)
}

// serveLines is [bucket.serveLines] for a window.
func (w *SlidingWindow) serveLines(lines int64) (left int64) {
	for !w.shared.queue.empty() {
		next := max(w.linesUntil(w.shared.queue.needs()), 1)
		if next > lines {
			break
		}
		w.slide(next)
		lines -= next
		serveWaiters(w, w.line)
	}
	return lines
}

// slide moves the window on by so many segments, and stops at the line on which
// it is unused.
func (w *SlidingWindow) slide(lines int64) {
	for ; lines > 0 && w.used > 0; lines-- {
		w.current = w.back(-1)
		w.used -= w.taken[w.current]
		w.taken[w.current] = 0
		w.line += w.period
	}
}

// back is the place in the ring of the segment that many before the current one.
// The one after the current one is also the oldest.
func (w *SlidingWindow) back(segments int) int {
	i := w.current - segments
	switch {
	case i < 0:
		return i + len(w.taken)
	case i >= len(w.taken):
		return i - len(w.taken)
	}
	return i
}

// grant charges the permits to the current segment, by whose beginning a refund
// finds it again.
func (w *SlidingWindow) grant(now int64, n int) Lease {
	w.granted++
	if n > 0 {
		if w.used == 0 {
			w.wake(w.at(now))
		}
		w.used += int64(n)
		w.taken[w.current] += int64(n)
	}
	return Lease{owner: w, n: n, tag: w.line}
}

// wake ends the idleness of an unused window: the grid has gone on meanwhile.
func (w *SlidingWindow) wake(at int64) {
	if elapsed := at - w.line; elapsed >= w.period {
		w.line = at - elapsed%w.period
	}
	w.idleAt = 0
}

// when is in real time, also for a window that is replenished by hand; that one
// needs no timer.
func (w *SlidingWindow) when(n int) int64 {
	if w.manual {
		return never
	}
	return later(w.line, w.linesUntil(int64(n)), w.period)
}

// linesUntil is how many lines from now n permits are free if nobody takes any.
func (w *SlidingWindow) linesUntil(n int64) int64 {
	over := w.used - (w.shared.limit - n)
	lines := 0
	for over > 0 && lines < len(w.taken) {
		lines++
		over -= w.taken[w.leaving(lines)]
	}
	return int64(lines)
}

// leaving is the place in the ring of the segment that leaves the window on that
// line, counted from 1.
func (w *SlidingWindow) leaving(line int) int { return w.back(len(w.taken) - line) }

func (w *SlidingWindow) retryAfter(now int64, n int) time.Duration {
	if w.shared.queue.empty() {
		return waitFor(now, w.line, w.linesUntil(weight(n)), w.period)
	}
	lines := linesAhead(&windowForecast{window: w, used: w.used}, &w.shared.queue, n)
	return waitFor(now, w.line, lines, w.period)
}

// Permits of a window are spent, not lent.
func (w *SlidingWindow) release(int, int64) {}

// refund gives back what was taken in the segment that began at tag, as long as
// that is in the window.
func (w *SlidingWindow) refund(n int, tag int64) {
	now := clock()
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
	age := segmentsBefore(w.line, w.before.momentOf(tag), w.period)
	if age < int64(len(w.taken)) && tag >= w.before.oldest {
		segment := w.back(int(age))
		n = min(n, w.taken[segment])
		w.taken[segment] -= n
		w.used -= n
	}
}
