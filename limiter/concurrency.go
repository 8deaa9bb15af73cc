package limiter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/contexterror"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/rate"
)

// A Concurrency limiter lends its permits: up to PermitLimit are held at once, and each comes back when its lease is
// released. It guards resources that can serve a number of users at once: connections, memory, a downstream service.
// Only a Release brings permits back, so its rejections have no RetryAfter.
//
// Permits go to waiters in the order of the queue. A waiter for many permits holds up the waiters behind it until its
// permits are free, so with [OldestFirst] it is not starved. The zero Concurrency is not usable: TryAcquire and Acquire
// return an error. Make one with [NewConcurrency].
type Concurrency struct {
	exhausted   exhaustion
	used        int64 // permits held; above the limit after that was lowered
	granted     int64
	unused      *slot // a list of slots without a lease
	unusedCount int
	lockedCommon

	idleSince  int64 // when it became full; unknown if the clock was not read then
	clockReads int   // readings of the clock by becomeIdle since the last call of IdleDuration
}

// A limiter reads the clock when its last permit comes back. That doubles the cost of the release, so after
// maxClockReads readings without a call of IdleDuration, the limiter stops reading it.
const maxClockReads = 1 << 10

// maxUnusedSlots is how many unused slots a limiter keeps for the next burst once all permits are back.
const maxUnusedSlots = 64

// A slot is the owner of a lease, and is used again after the lease has been released. Each use has another serial
// number, the tag of the lease, by which copies of an old lease are told from the current one. It is guarded by the
// limiter's lock.
type slot struct {
	from   *Concurrency
	serial int64
	next   *slot
}

// NewConcurrency returns a limiter with all permits free. The error is a [weir.OptionsError].
func NewConcurrency(o ConcurrencyOptions) (*Concurrency, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Concurrency{
		idleSince:    moment(),
		lockedCommon: newLockedCommon(int64(o.PermitLimit), o.QueueLimit, o.QueueOrder),
	}, nil
}

// TryAcquire takes n permits if they are free and no earlier caller waits for them. If n is 0, it reports whether a
// permit is free, and takes none.
func (c *Concurrency) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return c.acquire(ctx, n, false)
}

// Acquire takes n permits, and waits for them in the queue if there is room. If n is 0, it waits until a permit is
// free, and takes none.
func (c *Concurrency) Acquire(ctx context.Context, n int) (Lease, error) {
	return c.acquire(ctx, n, true)
}

func (c *Concurrency) acquire(ctx context.Context, n int, wait bool) (Lease, error) {
	ctxErr := deadline.Err(ctx)
	if n == 1 && ctxErr == nil && c.exhausted.bits.Load()&noneFree != 0 {
		if l, ok := c.exhausted.reject(wait); ok {
			return l, nil
		}
	}
	c.mu.Lock()
	if ctxErr == nil && c.admits(n) {
		l := c.grant(0, n)
		c.mu.Unlock()
		return l, nil
	}
	return c.rejectOrQueue(ctx, ctxErr, n, wait)
}

// admits reports whether n permits can be granted at once.
func (c *Concurrency) admits(n int) bool {
	return c.inRange(n) && !c.closed && mayPass(&c.queue, c.free(), n)
}

// rejectOrQueue answers a call that was not granted at once. c is locked; rejectOrQueue unlocks it.
func (c *Concurrency) rejectOrQueue(ctx context.Context, ctxErr error, n int, wait bool) (Lease, error) {
	valid := ctxErr == nil && c.inRange(n) && !c.closed
	if valid && c.free() <= 0 {
		c.exhausted.note(c.queue.limit > 0)
	}
	if wait || !valid {
		return rejectOrQueue(ctx, ctxErr, c, 0, n, wait)
	}
	c.failed++ // as the function rejectOrQueue does, without an interface
	c.mu.Unlock()
	return Lease{}, nil
}

// Reconfigure changes the limits of the live limiter. Permits that are held stay held: if u permits are held and the
// new limit is L, max(L − u, 0) are free. Raising the limit serves waiters at once; waiters for more than the new limit
// are rejected.
//
// The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (c *Concurrency) Reconfigure(o Options) error {
	l, err := limitsOf(rate.Concurrency, o)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	c.exhausted.clear()
	setLimits(c, 0, l)
	return nil
}

// Statistics returns the current figures, or the last ones of a closed limiter.
func (c *Concurrency) Statistics() Statistics {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Statistics{
		AvailablePermits: max(c.free(), 0),
		QueuedPermits:    c.queue.Permits(),
		SuccessfulLeases: c.granted,
		FailedLeases:     c.failed + c.exhausted.rejections(),
	}
}

// IdleDuration returns for how long no permit has been held.
//
// For that, the limiter reads the clock whenever the last permit comes back. After 1024 readings without a call of
// IdleDuration, it stops reading the clock. The next call then returns 0, and later calls count from that call until
// the limiter has been used again.
func (c *Concurrency) IdleDuration() (idle time.Duration, ok bool) {
	now := moment()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clockReads = 0
	if c.used > 0 {
		return 0, false
	}
	if c.idleSince == unknown {
		c.idleSince = now
	}
	return time.Duration(max(now-c.idleSince, 0)), true
}

// Close closes the limiter: waiters are rejected, later calls return [ErrClosed], and releasing a lease does nothing.
// It returns nil, and can be called again.
func (c *Concurrency) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exhausted.clear()
	closeEngine(c)
	return nil
}

func (c *Concurrency) catchUp(int64)      {}
func (c *Concurrency) free() int64        { return c.limit - c.used }
func (c *Concurrency) timerFor(int) int64 { return never }

func (c *Concurrency) retryAfter(int64, int) time.Duration { return 0 }

func (c *Concurrency) grant(_ int64, n int) Lease {
	c.granted++
	if n == 0 {
		return Lease{owner: (*zeroOwner)(c)}
	}
	c.used += int64(n)
	s := c.unused
	if s == nil {
		s = &slot{from: c}
	} else {
		c.unused, s.next = s.next, nil
		c.unusedCount--
	}
	return Lease{owner: s, n: n, tag: s.serial}
}

// A zeroOwner is a limiter as the owner of its leases for zero permits, which have nothing to give back.
type zeroOwner Concurrency

func (c *zeroOwner) Lends() bool        { return false }
func (c *zeroOwner) Release(int, int64) {}

func (c *zeroOwner) Refund(int, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.granted--
	}
}

func (s *slot) Release(n int, serial int64) {
	c := s.from
	c.mu.Lock()
	if s.serial == serial && !c.closed {
		c.reclaim(s, n)
	}
	c.mu.Unlock()
}

func (s *slot) Refund(n int, serial int64) {
	c := s.from
	c.mu.Lock()
	if s.serial == serial && !c.closed {
		c.granted--
		c.reclaim(s, n)
	}
	c.mu.Unlock()
}

// reclaim ends the use of a slot for n permits, and serves the queue.
func (c *Concurrency) reclaim(s *slot, n int) {
	s.serial++
	s.next, c.unused = c.unused, s
	c.unusedCount++
	c.used -= int64(n)
	c.exhausted.clear()
	if !c.queue.Empty() {
		serve(c, 0)
	}
	if c.used == 0 {
		c.becomeIdle()
	}
}

// becomeIdle begins the idleness of a limiter that is full again.
func (c *Concurrency) becomeIdle() {
	c.idleSince = unknown
	if c.clockReads < maxClockReads {
		c.clockReads++
		c.idleSince = moment()
	}
	if c.unusedCount > maxUnusedSlots {
		c.unused, c.unusedCount = nil, 0
	}
}

// Limits returns the limits in force.
func (c *Concurrency) Limits() rate.Limits { return c.Options().Limits() }

// Options returns the options in force.
func (c *Concurrency) Options() ConcurrencyOptions {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ConcurrencyOptions{
		PermitLimit: int(c.limit),
		QueueLimit:  c.queue.limit,
		QueueOrder:  c.queue.order,
	}
}

// Charge returns [errors.ErrUnsupported], because permits are lent; see [Charger].
func (c *Concurrency) Charge(ctx context.Context, n int) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, contexterror.Of(ctx)
	}
	return Level{}, noChargeError(c)
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (c *Concurrency) Peek(ctx context.Context, n int) (Lease, error) {
	ctxErr := ctx.Err()
	c.mu.Lock()
	return peek(ctx, ctxErr, c, 0, n)
}

// exhaustion rejects requests for one permit without the limiter's lock while no permit is free, so that a flood of them
// does not hold up releases. One permit is in range of every limiter.
//
// Bit 0 is set only while no permit is free and the limiter is open, bit 1 only while in addition no caller can queue.
// The bits above them count the rejections, so that each is decided and counted at one moment. The two lowest bits
// change only under the limiter's lock, and are cleared before a waiter is answered: a waiter that has been granted a
// permit, or rejected by Close, can ask again at once and must not be rejected because of an old bit.
type exhaustion struct {
	bits  atomic.Int64
	noted bool // guarded by the limiter's lock
}

const (
	noneFree     = 1 << 0
	noQueue      = 1 << 1
	oneRejection = 1 << 2
)

// reject counts and returns a rejection. ok is false if the caller has to take the lock.
func (f *exhaustion) reject(wait bool) (l Lease, ok bool) {
	need := int64(noneFree)
	if wait {
		need |= noQueue
	}
	for {
		bits := f.bits.Load()
		if bits&need != need {
			return Lease{}, false
		}
		if f.bits.CompareAndSwap(bits, bits+oneRejection) {
			break
		}
	}
	if wait {
		return rejected(0, noPermit), true
	}
	return Lease{}, true
}

// rejections returns how many rejections reject has counted.
func (f *exhaustion) rejections() int64 { return f.bits.Load() / oneRejection }

// note is called under the lock when a caller finds no free permit. Only the second call in a row sets the bits,
// because clearing them costs time: a limiter that rejects a single caller now and then should not pay for that on each
// release.
func (f *exhaustion) note(mayQueue bool) {
	switch {
	case !f.noted:
		f.noted = true
	case f.bits.Load()&noneFree != 0:
	case mayQueue:
		f.bits.Add(noneFree)
	default:
		f.bits.Add(noneFree | noQueue)
	}
}

// clear is called under the lock before a permit comes back, before a limit changes, and before the limiter closes.
func (f *exhaustion) clear() {
	f.noted = false
	if set := f.bits.Load() & (noneFree | noQueue); set != 0 {
		f.bits.Add(-set)
	}
}
