package limiter

import (
	"context"
	"math"
	"sync"
	"time"
)

// bucket is the limiter behind [TokenBucket] and [FixedWindow]: permits that are
// taken are missing from it, and on every grid line some come back. A fixed
// window is a bucket in which all of them do.
//
// A program may have a million buckets, one a key, of which few ever reject
// anybody. So what they have in common is shared between the buckets of one
// factory until one of them needs its own, and a bucket has six words.
type bucket struct {
	mu      sync.Mutex
	missing int64 // permits missing from full; above the limit after that was lowered
	line    int64 // the grid line that missing is right for; once full, the line that filled it
	spent   int64 // permits ever taken; wraps around
	granted int64 // leases granted
	state   *bucketState
}

// bucketState is the rest of a bucket. A shared one is never written to.
type bucketState struct {
	common
	refill int64 // permits that come back on each line
	period int64 // nanoseconds between two lines
	manual bool
	asOf   int64 // manual: the moment up to which time has gone on
	idleAt int64 // where not 0: since when a full bucket has been idle, instead of line

	refunded int64 // permits that were refunded since line

	shared       bool
	sharedClosed *bucketState // what a shared one becomes when its bucket is closed
}

// wholly is the refill of a bucket in which everything comes back.
const wholly = math.MaxInt64

// bucketLimits are the options of both kinds, in one form.
type bucketLimits struct {
	limit, refill int64
	period        time.Duration
	queueLimit    int
	queueOrder    QueueOrder
	manual        bool
}

func newBucketState(l bucketLimits) *bucketState {
	return &bucketState{
		common: common{limit: l.limit, queue: queue{limit: l.queueLimit, order: l.queueOrder}},
		refill: l.refill, period: int64(l.period), manual: l.manual,
	}
}

// shareable returns s as the state of many buckets. Those that are replenished
// by hand cannot share, because each has a time of its own.
func (s *bucketState) shareable() *bucketState {
	closed := *s
	closed.shared, closed.closed = true, true
	s.shared, s.sharedClosed = true, &closed
	return s
}

func (b *bucket) start(s *bucketState) {
	b.line = clock()
	if s.manual {
		s.asOf = b.line
	}
	b.state = s
}

// TryAcquire takes n permits if they are there now, and nobody waits for them
// who came before. With n == 0 it asks whether any is left.
func (b *bucket) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return b.acquire(ctx, clock(), n, false)
}

// Acquire takes n permits, and waits for them in the queue where there is room.
// With n == 0 it waits until one is there.
func (b *bucket) Acquire(ctx context.Context, n int) (Lease, error) {
	return b.acquire(ctx, clock(), n, true)
}

// acquire is both, for a caller who has read the clock.
func (b *bucket) acquire(ctx context.Context, now int64, n int, wait bool) (Lease, error) {
	ctxErr := ctx.Err()
	b.mu.Lock()
	if ctxErr == nil && b.admits(now, n) {
		l := b.grant(now, n)
		b.mu.Unlock()
		return l, nil
	}
	if wait {
		return join(ctx, ctxErr, b, now, n)
	}
	return refuse(ctx, ctxErr, b, now, n)
}

// admits tells whether n permits can be granted at once.
func (b *bucket) admits(now int64, n int) bool {
	if n < 0 || int64(n) > b.state.limit || b.state.closed {
		return false
	}
	b.catchUp(now)
	return mayPass(&b.state.queue, b.free(), n)
}

// Statistics returns the current figures; those of a closed limiter are its last.
func (b *bucket) Statistics() Statistics {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.closed {
		b.catchUp(now)
	}
	return Statistics{
		AvailablePermits: max(b.free(), 0),
		QueuedPermits:    b.state.queue.permits,
		SuccessfulLeases: b.granted,
		FailedLeases:     b.state.failed,
	}
}

// IdleDuration returns for how long the limiter has been full: since the grid
// line that filled it, or since it was made.
func (b *bucket) IdleDuration() (idle time.Duration, ok bool) {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.closed {
		b.catchUp(now)
	}
	if b.missing > 0 {
		return 0, false
	}
	since := b.line
	if b.state.idleAt != 0 {
		since = b.state.idleAt
	}
	return time.Duration(max(now-since, 0)), true
}

// TryReplenish catches up with every whole period that has gone by and returns
// true. On a limiter that replenishes by itself, and on a closed one, it does
// nothing and returns false.
func (b *bucket) TryReplenish() bool {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.manual || b.state.closed {
		return false
	}
	b.state.asOf = max(b.state.asOf, now)
	b.catchUp(now)
	return true
}

// ReplenishmentPeriod is the time between two refills.
func (b *bucket) ReplenishmentPeriod() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Duration(b.state.period)
}

// AutoReplenishing tells whether the limiter replenishes by itself.
func (b *bucket) AutoReplenishing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.state.manual
}

// Close closes the limiter: who waits comes back rejected, later calls return
// [ErrClosed]. It returns nil, and may be called again.
func (b *bucket) Close() error {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.closed {
		return nil
	}
	b.catchUp(now)
	if b.state.shared {
		b.state = b.state.sharedClosed
		return nil
	}
	closeEngine(b)
	return nil
}

func (b *bucket) lock()   { b.mu.Lock() }
func (b *bucket) unlock() { b.mu.Unlock() }

// common returns what this bucket has for itself, from now on.
func (b *bucket) common() *common {
	if b.state.shared {
		own := *b.state
		own.shared, own.sharedClosed = false, nil
		b.state = &own
	}
	return &b.state.common
}

func (b *bucket) free() int64 { return b.state.limit - b.missing }

// at is the moment up to which time has gone on for this bucket.
func (b *bucket) at(now int64) int64 {
	if b.state.manual {
		return b.state.asOf
	}
	return now
}

func (b *bucket) catchUp(now int64) {
	s := b.state
	elapsed := b.at(now) - b.line
	if b.missing == 0 || elapsed < s.period {
		if elapsed < otherClock {
			b.line += elapsed
		}
		return
	}
	b.pass(elapsed / s.period)
	if !s.queue.empty() {
		serve(b, now)
	}
}

// pass lets so many lines go by, and stops at the one that fills the bucket: a
// full one does not save up time.
func (b *bucket) pass(lines int64) {
	if b.state.refunded != 0 {
		b.state.refunded = 0
	}
	if enough := linesToCover(b.missing, b.state.refill); lines >= enough {
		b.missing = 0
		b.line += enough * b.state.period
		return
	}
	b.missing -= lines * b.state.refill
	b.line += lines * b.state.period
}

// linesToCover is how many lines bring that many permits; permits is at least 1.
func linesToCover(permits, refill int64) int64 { return (permits-1)/refill + 1 }

func (b *bucket) grant(now int64, n int) Lease {
	b.granted++
	if n > 0 {
		if b.missing == 0 {
			b.wake(b.at(now))
		}
		b.missing += int64(n)
		b.spent += int64(n)
	}
	return Lease{owner: b, n: n, tag: b.spent}
}

// wake ends the idleness of a full bucket: the grid has gone on meanwhile.
func (b *bucket) wake(at int64) {
	s := b.state
	if elapsed := at - b.line; elapsed >= s.period {
		b.line = at - elapsed%s.period
	}
	if s.idleAt != 0 {
		s.idleAt = 0
	}
}

// when is in real time, also for a bucket that is replenished by hand; that one
// needs no timer.
func (b *bucket) when(n int) int64 {
	if b.state.manual {
		return never
	}
	f := forecastBucket(b)
	return later(b.line, f.linesUntil(int64(n)), b.state.period)
}

func (b *bucket) retryAfter(now int64, n int) time.Duration {
	f := forecastBucket(b)
	lines := f.linesUntil(weight(n))
	if !b.state.queue.empty() {
		ahead := f // a copy for the heap, so that the usual way allocates nothing
		lines = linesAhead(&ahead, &b.state.queue, n)
	}
	return waitFor(now, b.line, lines, b.state.period)
}

// Permits of a bucket are spent, not lent.
func (b *bucket) release(int, int64) {}

// refund gives back what the lines that have gone by since have not brought
// already. A line pays for the permits that were taken first, so a grant is over
// when all that was taken up to it, which is its tag, has been paid for. What was
// refunded counts as taken first of all once a line has gone by: nothing is ever
// given back a second time, and within a line every refund is exact.
func (b *bucket) refund(n int, tag int64) {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.closed {
		return
	}
	b.catchUp(now)
	b.granted--
	if n == 0 {
		return
	}
	b.common()
	s := b.state
	paid := b.spent - b.missing - s.refunded
	back := min(max(tag-paid, 0), int64(n), b.missing)
	b.missing -= back
	s.refunded += back
	if !s.queue.empty() {
		serve(b, now)
	}
}

// reconfigure sets new limits; what is missing stays missing.
func (b *bucket) reconfigure(options string, l bucketLimits) error {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.closed {
		return ErrClosed
	}
	if l.manual != b.state.manual {
		return errManualFixed(options, l.manual)
	}
	b.catchUp(now)
	b.common()
	b.state.refill = l.refill
	if int64(l.period) != b.state.period {
		b.regrid(b.at(now), int64(l.period))
	}
	relimit(b, now, l.limit, l.queueLimit, l.queueOrder)
	return nil
}

// regrid anchors a grid of another period at the current line. If its next line
// is past already, that line counts as reached now, once.
func (b *bucket) regrid(at, period int64) {
	s := b.state
	if b.missing == 0 {
		idleAt := b.line
		if s.idleAt != 0 {
			idleAt = s.idleAt
		}
		b.wake(at)
		s.idleAt = idleAt
	}
	s.period = period
	if at-b.line >= period {
		b.line = at
		b.missing -= min(b.missing, s.refill)
		s.refunded = 0
	}
}

// bucketForecast is a forecast of a bucket.
type bucketForecast struct{ missing, limit, refill int64 }

func forecastBucket(b *bucket) bucketForecast {
	return bucketForecast{missing: b.missing, limit: b.state.limit, refill: b.state.refill}
}

func (f *bucketForecast) linesUntil(n int64) int64 {
	if over := f.missing - (f.limit - n); over > 0 {
		return linesToCover(over, f.refill)
	}
	return 0
}

func (f *bucketForecast) pass(lines int64) {
	if f.missing > 0 && lines >= linesToCover(f.missing, f.refill) {
		f.missing = 0
		return
	}
	f.missing -= lines * f.refill
}

func (f *bucketForecast) take(n int64) { f.missing += n }

// A waiter who wants n waits for the lines that bring n, and for part of one
// more at the most.
func (f *bucketForecast) atMost(waiters, permits int64) int64 {
	return addUp(permits/f.refill, waiters)
}
