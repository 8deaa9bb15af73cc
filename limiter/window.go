package limiter

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/waitlist"
	"github.com/weir-go/weir/rate"
)

// A SlidingWindow grants up to PermitLimit in any SegmentsPerWindow consecutive segments, and so in any stretch of time
// as long as Window minus one segment. Permits that are taken in a segment come back, all at once, when that segment
// leaves the window. The more segments there are, the closer it comes to "in any Window", at 24 bytes for each segment
// in which permits were taken; see [SlidingWindowOptions].
//
// Use it for "at most n in a minute" where bursts around a minute's edge must not double. A [FixedWindow] lets twice that through around a window's edge.
// The zero SlidingWindow is not usable: TryAcquire and Acquire return an error. Make one with [NewSlidingWindow].
type SlidingWindow struct{ window }

// NewSlidingWindow returns an unused limiter. The error is a [weir.OptionsError].
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &SlidingWindow{}
	w.start(o.Limits())
	return w, nil
}

// Reconfigure changes the limits of the live limiter. Permits that were taken in the window stay taken until they leave
// it: if u permits are taken and the new limit is L, max(L − u, 0) are free. Raising a limit serves waiters at once;
// waiters for more than the new limit are rejected.
//
// If Window or SegmentsPerWindow changes, the new current segment begins where the old one began, or now if it would be
// over. Permits that were taken in a segment are then counted in the last new segment that they could belong to, so no
// permit comes back too early, and earlier leases can no longer be refunded.
//
// The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (w *SlidingWindow) Reconfigure(o Options) error { return reconfigure(w, rate.SlidingWindow, o) }

// A window is a [rate.State] behind a lock, with a queue: a [SlidingWindow] or a [Calendar].
type window struct {
	schedule rate.Schedule
	state    rate.State
	array    []rate.Segment // where state.Segments is, from the beginning; see reserve
	line     int64          // the moment of state.Line
	length   int64          // the time from there to the next line
	fullFrom int64          // since when no permit is missing, if none is
	granted  int64
	lockedCommon
}

// start starts an unused window whose grid begins now. Calendars have theirs.
func (w *window) start(l rate.Limits) {
	now := moment()
	w.schedule = l.Schedule(1)
	w.schedule.Anchor = now
	if w.schedule.Every != 0 {
		w.schedule.Anchor = epoch(now)
	}
	w.state = w.schedule.Full(now)
	w.findLine()
	w.fullFrom = now
	w.lockedCommon = newLockedCommon(l)
}

// findLine sets line and length to what they are for the state.
func (w *window) findLine() {
	w.line = w.schedule.TimeOf(w.state.Line)
	w.length = w.schedule.TimeOf(w.state.Line+1) - w.line
}

// TryAcquire takes n permits if they are free and no earlier caller waits for them. If n is 0, it reports whether a
// permit is free, and takes none.
func (w *window) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, moment(), n, false)
}

// Acquire takes n permits, and waits for them in the queue if there is room. If n is 0, it waits until a permit is
// free, and takes none.
func (w *window) Acquire(ctx context.Context, n int) (Lease, error) {
	return w.acquire(ctx, moment(), n, true)
}

// acquire is TryAcquire and Acquire for a caller that has read the clock.
func (w *window) acquire(ctx context.Context, now int64, n int, wait bool) (Lease, error) {
	ctxErr := deadline.Err(ctx)
	w.mu.Lock()
	if ctxErr == nil && w.admits(now, n) {
		l := w.grant(now, n)
		w.mu.Unlock()
		return l, nil
	}
	return rejectOrQueue(ctx, ctxErr, w, now, n, wait)
}

// admits reports whether n permits can be granted at once.
func (w *window) admits(now int64, n int) bool {
	if !w.inRange(n) || w.closed {
		return false
	}
	w.catchUp(now)
	return mayPass(&w.queue, w.free(), n)
}

// grant takes n permits. The tag of the lease says in which segment, so that a refund finds it.
func (w *window) grant(_ int64, n int) Lease {
	w.granted++
	if len(w.state.Segments) == cap(w.state.Segments) {
		w.reserve()
	}
	w.schedule.Take(&w.state, int64(n), int64(n))
	return Lease{owner: (*windowOwner)(w), n: n, tag: w.schedule.Receipt(&w.state).Line}
}

// reserve makes room for one more segment. The state drops old segments at the front of the array, so room is mostly there,
// and a window that slides does not allocate.
func (w *window) reserve() {
	s := w.state.Segments
	if cap(w.array) <= len(s)+len(s)/4 {
		w.array = make([]rate.Segment, 0, len(s)+len(s)/2+1)
	}
	w.state.Segments = append(w.array[:0], s...)
}

// catchUp brings the window to the moment now, and serves the queue if permits came back.
func (w *window) catchUp(now int64) {
	moved := w.schedule.Every != 0 && w.followWallClock(now)
	if moved || uint64(now-w.line) >= uint64(w.length) { // also true if now is before the line
		catchUp(w, now)
	}
}

func (w *window) advance(at int64) {
	elapsed := at - w.line
	setBack := elapsed < -wallClockSlack && w.schedule.Every != 0
	if w.limit == 0 || elapsed < w.length && !setBack && !otherClock(elapsed) {
		return
	}
	if w.state.Missing > 0 {
		w.fullFrom = w.freeAt(w.limit)
	}
	w.schedule.Advance(&w.state, at)
	w.findLine()
	w.fullFrom = min(w.fullFrom, at)
}

func (w *window) freeAt(n int64) int64 {
	return w.schedule.TimeOf(w.schedule.LineOf(&w.state, n-w.free()))
}

func (w *window) forecast(f *forecast) {
	f.schedule, f.state = w.schedule, w.state
	f.array = append(slices.Grow(f.array[:0], len(w.state.Segments)+waitlist.Exact), w.state.Segments...)
	f.state.Segments = f.array
}

func (w *window) charge(_, n int64) {
	if len(w.state.Segments) == cap(w.state.Segments) {
		w.reserve()
	}
	w.schedule.Charge(&w.state, n)
}

// reprice keeps the tag: what is charged in a later segment counts as taken in that of the grant, which leaves the window earlier.
// So a refund gives back too little rather than too much.
func (w *window) reprice(now, n, tag, cost int64) (newTag int64) {
	w.charge(now, max(cost-n, 0))
	w.giveBack(n-cost, tag)
	return tag
}

func (w *window) giveBack(n, tag int64) {
	w.gave(w.schedule.Refund(&w.state, rate.Receipt{Line: tag}, n))
}

func (w *window) giveBackUnleased(n int64) { w.gave(w.schedule.GiveBack(&w.state, n)) }

// gave notes that n permits were given back.
func (w *window) gave(n int64) {
	if n > 0 && w.state.Missing == 0 {
		w.fullFrom = w.line
	}
}

func (w *window) free() int64 { return w.schedule.Free(&w.state) }

func (w *window) idleSince() int64 { return w.fullFrom }

func (w *window) counts() (granted, failed int64) { return w.granted, w.failed }

func (w *window) uncount() { w.granted-- }

func (w *window) close() { closeEngine(w) }

// A windowOwner is a window as the owner of its leases.
type windowOwner window

// Release does nothing: permits of a window are spent, not lent.
func (w *windowOwner) Release(int, int64) {}

func (w *windowOwner) Refund(n int, tag int64) { refund((*window)(w), n, tag) }

func (w *windowOwner) Correct(t Tenant, more int64) { correct((*window)(w), t, more) }

func (w *windowOwner) Adjust(n int, tag int64, cost int) (newTag int64, ok bool) {
	return adjust((*window)(w), n, tag, cost), true
}

// Charge takes n permits, even if fewer are free; see [Charger].
func (w *window) Charge(ctx context.Context, n int) (Level, error) {
	now := moment()
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	w.mu.Lock()
	return chargeClocked(w, now, n)
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (w *window) Peek(ctx context.Context, n int) (Lease, error) {
	now, ctxErr := moment(), ctx.Err()
	w.mu.Lock()
	return peek(ctx, ctxErr, w, now, n)
}

// Limits returns the limits in force.
func (w *window) Limits() rate.Limits { return limitsInForce(w) }

// Statistics returns the current figures, or the last ones of a closed limiter.
func (w *window) Statistics() Statistics { return statisticsOf(w) }

// IdleDuration returns for how long the whole window has been unused: since the grid line on which its last used
// segment left, or since it was made.
func (w *window) IdleDuration() (idle time.Duration, ok bool) { return idleAsOf(w, moment()) }

// Close closes the limiter: waiters are rejected, and later calls return [ErrClosed]. It returns nil, and can be called
// again.
func (w *window) Close() error { return closeClocked(w) }

func (w *window) limits() rate.Limits {
	return w.queue.Limits(w.schedule.Limits(1))
}

func (w *window) adopt(now int64, l rate.Limits) {
	to := l.Schedule(1)
	to.Anchor = w.schedule.Anchor
	if !to.SameLines(&w.schedule) {
		w.changeGrid(to, now)
	}
	w.schedule.Permits = to.Permits
	setLimits(w, now, l)
}

// changeGrid begins another grid; see [rate.Schedule.Follow].
func (w *window) changeGrid(to rate.Schedule, at int64) {
	wasFull := w.state.Missing == 0
	reached := to.Follow(&w.schedule, w.line, at)
	w.state = to.Convert(&w.schedule, w.state, at, reached)
	w.schedule, w.array = to, nil
	w.findLine()
	if !wasFull {
		w.fullFrom = at
	}
}
