package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/rate"
)

// A TokenBucket lets through bursts of up to TokenLimit, and TokensPerPeriod in each period in the long run. The tokens
// of a period come all at once, at its end; the first period begins when the limiter is made. 10 tokens in 100 ms and 1
// token in 10 ms are the same rate, but with the second, tokens come more evenly.
//
// Most callers should use it: it is small and exact. Around a grid line, up to TokenLimit + TokensPerPeriod pass at
// once; with short periods that is little more than TokenLimit, while a [FixedWindow] lets twice its limit through. The
// zero TokenBucket is not usable: TryAcquire and Acquire return an error. Make one with [NewTokenBucket].
type TokenBucket struct{ bucket }

// NewTokenBucket returns a full bucket. The error is a [weir.OptionsError].
func NewTokenBucket(o TokenBucketOptions) (*TokenBucket, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &TokenBucket{}
	b.start(newBucketState(o.Limits()))
	return b, nil
}

// Reconfigure changes the limits of the live bucket. Tokens that are missing from full stay missing: if u tokens are
// missing and the new limit is L, the bucket has L − u tokens; if that is negative, it owes u − L. Raising a limit
// serves waiters at once; waiters for more than the new limit are rejected. If ReplenishmentPeriod changes, the new
// periods begin at the current grid line, or now if the first one would be over.
//
// The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (b *TokenBucket) Reconfigure(o Options) error { return reconfigure(b, rate.TokenBucket, o) }

// A FixedWindow grants up to PermitLimit in each window. The windows follow each other on a grid that begins when the
// limiter is made, and each begins with all permits.
//
// Use it for quotas that are written that way ("1000 an hour"). Where two windows meet, up to twice the limit can pass
// at once; a [SlidingWindow] of many segments or a [TokenBucket] of short periods does not let that happen. The zero
// FixedWindow is not usable: TryAcquire and Acquire return an error. Make one with [NewFixedWindow].
type FixedWindow struct{ bucket }

// NewFixedWindow returns a limiter at the beginning of a window. The error is a [weir.OptionsError].
func NewFixedWindow(o FixedWindowOptions) (*FixedWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &FixedWindow{}
	w.start(newBucketState(o.Limits()))
	return w, nil
}

// Reconfigure changes the limits of the live limiter. Permits that were taken in the current window stay taken: if u
// permits are taken and the new limit is L, max(L − u, 0) are free in it. Raising a limit serves waiters at once;
// waiters for more than the new limit are rejected. If Window changes, the new window begins where the current one
// began, or now if it would be over.
//
// The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (w *FixedWindow) Reconfigure(o Options) error { return reconfigure(w, rate.FixedWindow, o) }

// bucket is the limiter behind [TokenBucket] and [FixedWindow].
//
// The grid has a line every period. On each line, min(missing, refill) permits come back; a fixed window is a bucket in
// which all of them do. line is the last line that missing accounts for. A full bucket stops at the line that filled
// it, so that time is not saved up, and goes on from the last line before its next grant.
//
// # Refunds
//
// The tag of a lease is how many permits were ever taken, up to the grant and with it. Lines pay for permits in the order in
// which they were taken, so a grant of n permits is worth what is unpaid of all that was taken up to it:
//
//	min(n, tag - paid, missing)        paid = spent - missing - refunded
//
// What was refunded since the last line does not count as paid, so a refund is exact as long as no line has passed since
// the grant. When a line has passed, earlier refunds count as paid, also of grants that were later than this one: then
// a refund can give back less than if the grant had never been, and never more. A Charge that gives permits back is like a line
// in this.
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
	failed  uint32 // leases rejected; bucketState.failed and unlocked have the others
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
	ctxErr := deadline.Err(ctx)
	if s := b.state(); n == 1 && ctxErr == nil && s != nil {
		if until := s.noneUntil.Load(); until != 0 && now < until && !otherClock(now-until) {
			s.unlocked.Add(1)
			return rejectedUntil(until, now, wait), nil
		}
	}
	b.mu.Lock()
	s := b.state()
	if ctxErr != nil || !s.isCommonCase(now-b.line, n) {
		return b.acquireSlow(ctx, ctxErr, now, n, wait)
	}
	if now-b.line >= s.period {
		b.pass(now, true) // a full bucket grants the request
		s = b.state()
	}
	over := b.missing - (s.limit - int64(n))
	if over <= 0 {
		l := b.take(n)
		b.mu.Unlock()
		return l, nil
	}
	if wait && s.queue.Limit() > 0 {
		return b.acquireSlow(ctx, nil, now, n, true)
	}
	b.countFailed()
	at := later(b.line, linesToCover(over, s.refill), s.period)
	if n == 1 && s.family == nil && s.queue.Limit() == 0 {
		s.noneUntil.Store(at)
	}
	b.mu.Unlock()
	return rejectedUntil(at, now, wait), nil
}

// rejectedUntil returns a rejected lease whose RetryAfter ends at the moment at.
func rejectedUntil(at, now int64, wait bool) Lease {
	l := Lease{tag: int64(max(until(at, now), 1))}
	if wait {
		l.owner, l.n = noPermit, remainingUnknown
	}
	return l
}

// isCommonCase reports whether acquire can decide a request for n permits from what is missing since the last line, and the limits.
func (s *bucketState) isCommonCase(elapsed int64, n int) bool {
	return s != nil && n > 0 && int64(n) <= s.limit && !s.closed && s.queue.Empty() && !otherClock(elapsed)
}

// take takes n permits of a bucket that is up to date and has them.
func (b *bucket) take(n int) Lease {
	b.missing += int64(n)
	b.spent += int64(n)
	if b.granted++; b.granted == 0 {
		b.carryGranted()
	}
	return Lease{owner: (*bucketOwner)(b), n: n, tag: b.spent}
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
	return rejectOrQueue(ctx, ctxErr, b, now, n, wait)
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

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (b *bucket) Peek(ctx context.Context, n int) (Lease, error) {
	now, ctxErr := moment(), ctx.Err()
	b.lockToAsk()
	return peek(ctx, ctxErr, b, now, n)
}

// Charge takes n permits, even if fewer are free; see [Charger].
func (b *bucket) Charge(ctx context.Context, n int) (Level, error) {
	now := moment()
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	if n == 0 {
		b.lockToAsk()
	} else {
		b.lock()
	}
	return chargeClocked(b, now, n)
}

// Limits returns the limits in force.
func (b *bucket) Limits() rate.Limits { return limitsInForce(b) }

// Statistics returns the current figures, or the last ones of a closed limiter.
func (b *bucket) Statistics() Statistics { return statisticsOf(b) }

func (b *bucket) counts() (granted, failed int64) {
	s := b.state()
	return s.granted + int64(b.granted), s.failed + s.unlocked.Load() + int64(b.failed)
}

// IdleDuration returns for how long the limiter has been full: since the grid line that filled it, or since it was
// made.
func (b *bucket) IdleDuration() (idle time.Duration, ok bool) { return idleAsOf(b, moment()) }

func (b *bucket) idleSince() int64 { return b.line }

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
	b.lockToAsk()
	if s := b.state(); s.noneUntil.Load() != 0 {
		s.noneUntil.Store(0)
	}
	if b.line == notBegun {
		b.line = moment()
	}
}

// lockToAsk locks the bucket for a question, which begins no grid.
func (b *bucket) lockToAsk() {
	b.mu.Lock()
	if b.state() == nil {
		b.current.Store(notMade)
	}
}

func (b *bucket) view() *common { return &b.state().common }

func (b *bucket) free() int64 { return b.state().limit - b.missing }

// catchUp brings the bucket to the moment now, and serves the queue if permits came back.
func (b *bucket) catchUp(now int64) {
	s := b.state()
	elapsed := now - b.line
	switch {
	case b.missing > 0 && elapsed >= s.period:
		catchUp(b, now)
	case otherClock(elapsed) && b.line != notBegun:
		b.line += elapsed
	}
}

// advance lets the lines up to a moment pass, and stops at the one that fills the bucket.
func (b *bucket) advance(at int64) {
	if b.missing > 0 && at-b.line >= b.state().period {
		b.pass(at, false)
	}
}

// endIdleness ends the idleness of a bucket if it is full: its line becomes the last one that is not after at.
func (b *bucket) endIdleness(at int64) {
	if b.missing == 0 && at-b.line >= b.state().period {
		b.pass(at, true)
	}
}

// pass lets the lines up to a moment pass; there is at least one. If on is false, it stops at the one that fills the bucket.
func (b *bucket) pass(at int64, on bool) {
	s, missing := b.state(), b.missing
	lines := (at - b.line) / s.period
	if enough := linesToCover(missing, s.refill); lines < enough {
		b.missing -= lines * s.refill
	} else if b.missing = 0; !on {
		lines = enough
	}
	b.line += lines * s.period
	b.linePassed()
	if missing > 0 {
		b.share()
	}
}

// linePassed makes what was refunded count as paid.
func (b *bucket) linePassed() {
	if s := b.state(); !s.shared {
		s.refunded = 0
	}
}

// linesToCover returns how many lines bring that many permits: at least one.
func linesToCover(permits, refill int64) int64 {
	if permits <= refill {
		return 1
	}
	return (permits-1)/refill + 1
}

// grant takes n permits that are free, and counts the lease.
func (b *bucket) grant(now int64, n int) Lease {
	if n > 0 {
		b.endIdleness(now)
	}
	return b.take(n)
}

func (b *bucket) freeAt(n int64) int64 {
	s := b.state()
	over := b.missing - (s.limit - n)
	if over <= 0 {
		return b.line
	}
	return later(b.line, linesToCover(over, s.refill), s.period)
}

func (b *bucket) forecast(f *forecast) {
	s := b.state()
	f.schedule = rate.Schedule{Kind: s.kind, Permits: s.limit, Refill: s.refill, Period: s.period, Anchor: b.line}
	f.state = rate.State{Missing: b.missing}
}

func (b *bucket) charge(now, n int64) {
	b.endIdleness(now)
	n = max(min(n, max(rate.MaxDebt, b.state().limit)-b.missing), 0)
	b.missing += n
	b.spent += n
}

// A bucketOwner is a bucket as the owner of its leases.
type bucketOwner bucket

// Release does nothing: permits of a bucket are spent, not lent.
func (b *bucketOwner) Release(int, int64) {}

func (b *bucketOwner) Refund(n int, tag int64) { refund((*bucket)(b), n, tag) }

func (b *bucketOwner) Correct(t Tenant, more int64) { correct((*bucket)(b), t, more) }

func (b *bucketOwner) Adjust(n int, tag int64, cost int) (newTag int64, ok bool) {
	return adjust((*bucket)(b), n, tag, cost), true
}

func (b *bucket) uncount() {
	if b.granted == 0 {
		b.ownState().granted--
	} else {
		b.granted--
	}
}

// worth returns what a grant of n permits is worth; see [bucket].
func (b *bucket) worth(n, tag int64) int64 { return min(max(tag-b.paid(), 0), n, b.missing) }

// paid returns how many of all permits ever taken the lines have paid for; see [bucket].
func (b *bucket) paid() int64 { return b.spent - b.missing - b.state().refunded }

func (b *bucket) giveBack(n, tag int64) {
	if n = b.worth(n, tag); n > 0 {
		b.missing -= n
		b.ownState().refunded += n
	}
}

// reprice makes the tag that of a grant whose permits are the next that lines pay for. So lines pay for the lease before they
// pay for permits that are taken later, and the lease is never worth too much.
func (b *bucket) reprice(now, n, tag, cost int64) (newTag int64) {
	unpaid, missing := b.worth(n, tag), b.missing
	if cost < n {
		b.giveBack(min(n-cost, unpaid), tag)
	} else if cost > n {
		b.charge(now, cost-n)
	}
	return b.paid() + unpaid + b.missing - missing
}

func (b *bucket) giveBackUnleased(n int64) {
	b.missing -= min(n, b.missing)
	b.linePassed()
}
