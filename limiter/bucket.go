package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// bucket is the limiter behind [TokenBucket] and [FixedWindow].
//
// The grid has a line every period. On each line, min(missing, refill) permits come back; a fixed window is a bucket in
// which all of them do. line is the last line that missing accounts for. A full bucket stops at the line that filled
// it, so that time is not saved up, and goes on from the last line before its next grant.
//
// # Refunds
//
// A refund leaves the bucket as if the grant had never been. It does not always give n permits back: without the grant,
// the bucket would have been fuller by n, and would have lost some of what a line brought. A Charge that gives permits
// back is like a line in that. So a grant of n permits is worth
//
//	min(n, missing, the least that was missing right after any line or such Charge since the grant)
//
// The tag of the lease says since when. It depends on the state that the bucket had at the grant:
//
//	own state:     tag = line of the grant        worth = leastSince(tag), from the lows that the state keeps
//	shared state:  tag = spent after the grant    worth = tag - paid, where paid = spent - missing - refunded
//
// A shared state keeps no lows. There, lines pay for permits in the order in which they were taken, and a grant is
// worth what is unpaid of all that was taken up to it. A refund counts as paid once a line has passed, or a Charge has
// given permits back. That is never more than the exact worth, and can be less. If the tag is a line, the lease's owner
// is the bucket as an [ownBucket].
//
// A Charge can give permits back between two lines, and a lease before it has the same line as one after it. So a bucket
// with a state of its own then keeps a low that is about all leases up to that moment, and tags the later leases as in a
// shared state until a line fills it. Lines pay for the earlier leases first, so that these are worth
//
//	min(the above, spent at that moment - refunds of such leases - paid)
//
// # Memory
//
// A program can have a million buckets, one for each key, and few of them ever have waiters. So the buckets of one
// family share one state, which is never written to, and a bucket has six words. A bucket gets a state of its own with
// its first waiter or refund, or when a count no longer fits; see ownState. It goes back to the shared state when a
// line fills it; see share.
type bucket struct {
	mu      sync.Mutex
	missing int64  // permits missing from full; can be above the limit, after that was lowered or a lease was adjusted
	line    int64  // the last line that missing accounts for; once full, the line that filled it; or notBegun
	spent   int64  // permits ever taken; wraps around
	granted uint32 // leases granted; bucketState.granted has the others
	failed  uint32 // leases rejected; bucketState.failed and refused have the others
	current atomic.Pointer[bucketState]
}

func (b *bucket) state() *bucketState { return b.current.Load() }

// TryAcquire takes n permits if they are free and no earlier caller waits for them. If n is 0, it reports whether a
// permit is free, and takes none.
func (b *bucket) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return b.acquire(ctx, moment(), n, false)
}

// Acquire takes n permits, and waits for them in the queue if there is room. If n is 0, it waits until a permit is
// free, and takes none.
func (b *bucket) Acquire(ctx context.Context, n int) (Lease, error) {
	return b.acquire(ctx, moment(), n, true)
}

// acquire is TryAcquire and Acquire for a caller that has read the clock. It decides the common case itself: the
// permits are there or not, and the queue is empty.
//
// If many callers are rejected, waiting for the lock would take most of their time. So a rejection leaves in noneUntil
// the moment before which no permit comes back, and until then acquire rejects requests for one permit without the
// lock. It does so only for a bucket that belongs to no family and has no queue. [bucket.lock] clears the moment, so
// all code that changes a bucket outside of acquire must lock it by that method.
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
	if ctxErr != nil || !b.isCommonCase(s, now, n) {
		return b.acquireSlow(ctx, ctxErr, now, n, wait)
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
		return enqueue(ctx, b, now, n)
	}
	b.countFailed()
	at := later(b.line, linesToCover(over, s.refill), s.period)
	if n == 1 && s.family == nil && s.queue.limit == 0 {
		s.noneUntil.Store(at)
	}
	b.mu.Unlock()
	return refusedUntil(at, now, wait), nil
}

// refusedUntil returns a rejected lease whose RetryAfter ends at the moment at.
func refusedUntil(at, now int64, wait bool) Lease {
	l := Lease{tag: int64(max(until(at, now), 1))}
	if wait {
		l.owner, l.n = noPermit, remainingUnknown
	}
	return l
}

// isCommonCase reports whether acquire can decide a request for n permits from missing and the limits.
func (b *bucket) isCommonCase(s *bucketState, now int64, n int) bool {
	return s != nil && n > 0 && int64(n) <= s.limit && !s.closed && !s.manual && s.queue.empty() && s.idleAt == 0 &&
		!otherClock(now-b.line)
}

// advance is catchUp for acquire, once a line has passed. It also advances the line of a full bucket, because acquire
// always grants a request to a full bucket, which ends its idleness.
func (b *bucket) advance(s *bucketState, elapsed int64) {
	lines := s.byPeriod.quotient(elapsed)
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
	if s.shared || s.counts {
		l = Lease{owner: b, n: n, tag: b.spent}
	}
	if b.granted++; b.granted == 0 {
		b.carryGranted()
	}
	return l
}

// carryGranted moves the count of granted leases, which has wrapped around, to a state of the bucket's own.
func (b *bucket) carryGranted() { b.ownState().granted += 1 << 32 }

// countFailed counts a rejected lease.
func (b *bucket) countFailed() {
	if b.failed++; b.failed == 0 {
		b.ownState().failed += 1 << 32
	}
}

// acquireSlow is acquire for all but the common case. The bucket is locked; acquireSlow unlocks it.
func (b *bucket) acquireSlow(ctx context.Context, ctxErr error, now int64, n int, wait bool) (Lease, error) {
	if b.line == notBegun {
		b.line = now
	}
	if ctxErr == nil && b.admits(now, n) {
		l := b.grant(now, n)
		b.mu.Unlock()
		return l, nil
	}
	return refuse(ctx, ctxErr, b, now, n, wait)
}

// admits reports whether n permits can be granted at once.
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

// Statistics returns the current figures, or the last ones of a closed limiter.
func (b *bucket) Statistics() Statistics { return statisticsOf(b) }

func (b *bucket) counts() (granted, failed int64) {
	s := b.state()
	return s.granted + int64(b.granted), s.failed + s.refused.Load() + int64(b.failed)
}

// IdleDuration returns for how long the limiter has been full: since the grid line that filled it, or since it was
// made.
func (b *bucket) IdleDuration() (idle time.Duration, ok bool) { return idleAsOf(b, moment()) }

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

// TryReplenish catches up with every whole period that has passed and returns true. If the limiter replenishes by
// itself or is closed, it does nothing and returns false.
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

// ReplenishmentPeriod returns the time between two refills.
func (b *bucket) ReplenishmentPeriod() time.Duration {
	b.lock()
	defer b.mu.Unlock()
	return time.Duration(b.state().period)
}

// AutoReplenishing reports whether the limiter replenishes by itself.
func (b *bucket) AutoReplenishing() bool {
	s := b.state()
	return s == nil || !s.manual
}

// Close closes the limiter: waiters are rejected, and later calls return [ErrClosed]. It returns nil, and can be called
// again.
func (b *bucket) Close() error { return closeClocked(b) }

func (b *bucket) close() {
	switch s := b.state(); {
	case s.closed:
	case s.shared:
		b.current.Store(s.sharedClosed)
	default:
		closeEngine(b)
	}
}

func (b *bucket) unlock() { b.mu.Unlock() }

// lock locks the bucket for code that may change it; see acquire.
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

func (b *bucket) view() *common { return &b.state().common }

func (b *bucket) free() int64 { return b.state().limit - b.missing }
