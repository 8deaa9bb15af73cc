package limiter

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// bucket is the limiter behind [TokenBucket] and [FixedWindow]: permits that are
// taken are missing from it, and on every grid line some come back. A fixed
// window is a bucket in which all of them do.
//
// A program may have a million buckets, one for each key, and few of them ever have
// waiters. So the buckets of one family share what they have in common until one of
// them needs a state of its own, and a bucket has six words. Once it is full again it
// goes back to the shared state.
type bucket struct {
	mu      sync.Mutex
	missing int64  // permits missing from full; above the limit after that was lowered
	line    int64  // the grid line that missing is right for; once full, the line that filled it; or notBegun
	spent   int64  // permits ever taken; wraps around
	granted uint32 // leases granted that bucketState.granted does not count
	failed  uint32 // leases rejected that bucketState.failed does not count
	current atomic.Pointer[bucketState]
}

func (b *bucket) state() *bucketState { return b.current.Load() }

// bucketState is the rest of a bucket. A shared one is never written to.
type bucketState struct {
	noneUntil atomic.Int64 // if not 0, no permit comes back before that moment; see acquire
	refused   atomic.Int64 // leases rejected because of noneUntil

	refill int64   // permits that come back on each line
	period int64   // nanoseconds between two lines
	lines  divisor // by period
	idleAt int64   // where not 0: since when a full bucket has been idle, instead of line
	manual bool
	shared bool
	common

	asOf    int64 // manual: the moment up to which time has gone on
	granted int64 // leases granted that the bucket does not count

	refunded int64 // permits that were refunded since line
	lows     []low // see ownBucket
	since    int64 // the line on which the bucket got this state for itself

	family       *bucketFamily // nil: that of one bucket
	sharedClosed *bucketState  // what a shared one becomes when its bucket is closed
}

// refillAll is the refill of a bucket in which everything comes back.
const refillAll = math.MaxInt64

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
		refill: l.refill, period: int64(l.period), lines: newDivisor(max(int64(l.period), 1)), manual: l.manual,
		since: unknown,
	}
}

func (s *bucketState) limits() bucketLimits {
	return bucketLimits{
		limit: s.limit, refill: s.refill, period: time.Duration(s.period),
		queueLimit: s.queue.limit, queueOrder: s.queue.order, manual: s.manual,
	}
}

func (b *bucket) start(s *bucketState) {
	b.line = moment()
	if s.manual {
		s.asOf = b.line
	}
	b.current.Store(s)
}

// notBegun is the line of a bucket whose grid begins with its first call.
const notBegun = 1 << 62

// startWithFirstCall starts a bucket for a key. Reading the clock once more would be a good part of the time that a new key
// takes, and its first call has read it.
func (b *bucket) startWithFirstCall(s *bucketState) {
	if s.manual {
		b.start(s)
		return
	}
	b.line = notBegun
	b.current.Store(s)
}

// TryAcquire takes n permits if they are there now, and nobody waits for them
// who came before. With n == 0 it asks whether any is left.
func (b *bucket) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return b.acquire(ctx, moment(), n, false)
}

// Acquire takes n permits, and waits for them in the queue where there is room.
// With n == 0 it waits until one is there.
func (b *bucket) Acquire(ctx context.Context, n int) (Lease, error) {
	return b.acquire(ctx, moment(), n, true)
}

// acquire is both, for a caller that has read the clock. It decides the common case itself:
// the permits are there or not, and the queue is empty.
//
// While many callers are rejected, waiting for the lock would be most of the time. So a rejection leaves in noneUntil the
// moment before which no permit comes back, and until then acquire rejects requests for one permit without the lock. It
// does so only for a bucket with a state of its own and without a queue. [bucket.lock] forgets the moment, so everything
// else that changes a bucket must take the lock by that method.
func (b *bucket) acquire(ctx context.Context, now int64, n int, wait bool) (Lease, error) {
	ctxErr := ctx.Err()
	if s := b.state(); n == 1 && ctxErr == nil && s != nil {
		if until := s.noneUntil.Load(); until != 0 && now < until && !otherClock(now-until) {
			s.refused.Add(1)
			return refusedUntil(until, now, wait), nil
		}
	}
	b.mu.Lock()
	s := b.state()
	if ctxErr != nil || !b.plain(s, now, n) {
		return b.acquireRarely(ctx, ctxErr, now, n, wait)
	}
	if elapsed := now - b.line; elapsed >= s.period {
		b.advance(s, elapsed)
		s = b.state()
	}
	over := b.missing - (s.limit - int64(n))
	if over <= 0 {
		l := b.take(s, n)
		b.mu.Unlock()
		return l, nil
	}
	if wait && s.queue.limit > 0 {
		return join(ctx, nil, b, now, n)
	}
	b.countFailed()
	at := later(b.line, linesToCover(over, s.refill), s.period)
	if n == 1 && s.family == nil && s.queue.limit == 0 {
		s.noneUntil.Store(at)
	}
	b.mu.Unlock()
	return refusedUntil(at, now, wait), nil
}

// refusedUntil is a rejected lease whose RetryAfter ends at the moment at.
func refusedUntil(at, now int64, wait bool) Lease {
	l := Lease{tag: int64(max(until(at, now), 1))}
	if wait {
		l.owner, l.n = noPermit, -1
	}
	return l
}

// plain reports whether a request for n permits is decided by what is missing alone.
func (b *bucket) plain(s *bucketState, now int64, n int) bool {
	return s != nil && n > 0 && int64(n) <= s.limit && !s.closed && !s.manual && s.queue.empty() && s.idleAt == 0 &&
		!otherClock(now-b.line)
}

// advance is catchUp for acquire, once a line has been reached. The line of a full bucket goes on, because such a bucket
// grants what it is asked for, so its idleness ends.
func (b *bucket) advance(s *bucketState, elapsed int64) {
	lines := s.lines.quotient(elapsed)
	b.line += lines * s.period
	if b.missing == 0 {
		return
	}
	if b.missing <= s.refill || lines >= linesToCover(b.missing, s.refill) {
		b.missing = 0
	} else {
		b.missing -= lines * s.refill
	}
	if !s.shared {
		b.noteLow()
	}
}

// take takes n permits of a bucket that is up to date and has them. s is its state.
func (b *bucket) take(s *bucketState, n int) Lease {
	b.missing += int64(n)
	b.spent += int64(n)
	l := Lease{owner: (*ownBucket)(b), n: n, tag: b.line}
	if s.shared {
		l = Lease{owner: b, n: n, tag: b.spent}
	}
	if b.granted++; b.granted == 0 {
		b.carryGranted()
	}
	return l
}

// carryGranted moves the count of granted leases, which has wrapped around, to a state of the bucket's own.
func (b *bucket) carryGranted() {
	b.common()
	b.state().granted += 1 << 32
}

func (b *bucket) countFailed() {
	if b.failed++; b.failed == 0 {
		b.common().failed += 1 << 32
	}
}

// acquireRarely is acquire for any request. The bucket is locked.
func (b *bucket) acquireRarely(ctx context.Context, ctxErr error, now int64, n int, wait bool) (Lease, error) {
	if b.line == notBegun {
		b.line = now
	}
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
	if b.state() == nil {
		b.current.Store(notMade)
	}
	if !b.state().inRange(n) || b.state().closed {
		return false
	}
	b.catchUp(now)
	return mayPass(&b.state().queue, b.free(), n)
}

// Statistics returns the current figures; those of a closed limiter are its last.
func (b *bucket) Statistics() Statistics {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if !b.state().closed {
		b.catchUp(now)
	}
	return Statistics{
		AvailablePermits: max(b.free(), 0),
		QueuedPermits:    b.state().queue.permits,
		SuccessfulLeases: b.state().granted + int64(b.granted),
		FailedLeases:     b.state().failed + b.state().refused.Load() + int64(b.failed),
	}
}

// IdleDuration returns for how long the limiter has been full: since the grid
// line that filled it, or since it was made.
func (b *bucket) IdleDuration() (idle time.Duration, ok bool) { return b.idleAsOf(moment()) }

func (b *bucket) idleAsOf(now int64) (idle time.Duration, ok bool) {
	b.lock()
	defer b.mu.Unlock()
	return b.idleFor(now)
}

func (b *bucket) idleFor(now int64) (idle time.Duration, ok bool) {
	if !b.state().closed {
		b.catchUp(now)
	}
	if b.missing > 0 {
		return 0, false
	}
	since := b.line
	if b.state().idleAt != 0 {
		since = b.state().idleAt
	}
	return time.Duration(max(now-since, 0)), true
}

// closeIfIdle closes the limiter if it has been idle for longer than that.
func (b *bucket) closeIfIdle(longer, now int64) bool {
	b.lock()
	defer b.mu.Unlock()
	if idle, ok := b.idleFor(now); !ok || int64(idle) <= longer {
		return false
	}
	b.close()
	return true
}

// TryReplenish catches up with every whole period that has gone by and returns
// true. On a limiter that replenishes by itself, and on a closed one, it does
// nothing and returns false.
func (b *bucket) TryReplenish() bool {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if !b.state().manual || b.state().closed {
		return false
	}
	b.state().asOf = max(b.state().asOf, now)
	b.catchUp(now)
	return true
}

// ReplenishmentPeriod is the time between two refills.
func (b *bucket) ReplenishmentPeriod() time.Duration {
	b.lock()
	defer b.mu.Unlock()
	return time.Duration(b.state().period)
}

// AutoReplenishing tells whether the limiter replenishes by itself.
func (b *bucket) AutoReplenishing() bool {
	s := b.state()
	return s == nil || !s.manual
}

// Close closes the limiter: who waits comes back rejected, later calls return
// [ErrClosed]. It returns nil, and may be called again.
func (b *bucket) Close() error {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if !b.state().closed {
		b.catchUp(now)
		b.close()
	}
	return nil
}

func (b *bucket) close() {
	switch {
	case b.state().closed:
	case b.state().shared:
		b.current.Store(b.state().sharedClosed)
	default:
		closeEngine(b)
	}
}

func (b *bucket) unlock() { b.mu.Unlock() }

func (b *bucket) lock() {
	b.mu.Lock()
	s := b.state()
	if s == nil {
		b.current.Store(notMade)
		return
	}
	if s.noneUntil.Load() != 0 {
		s.noneUntil.Store(0)
	}
	if b.line == notBegun {
		b.line = moment()
	}
}

// notMade is the state of a zero TokenBucket or FixedWindow: a closed one that has nothing to give.
var notMade = shareable(&bucketState{common: common{closed: true}})

func (b *bucket) view() *common { return &b.state().common }

// common returns what this bucket has for itself, from now on.
func (b *bucket) common() *common {
	if s := b.state(); s.shared {
		own := newBucketState(s.limits())
		own.family, own.closed, own.since = s.family, s.closed, b.line
		b.current.Store(own)
	}
	return &b.state().common
}

func (b *bucket) free() int64 { return b.state().limit - b.missing }
