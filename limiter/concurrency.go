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

// A Concurrency limiter lends its permits: up to PermitLimit are held at once, and each comes back when its lease is
// released. It guards resources that can serve a number of users at once: connections, memory, a downstream service.
// Only a Release brings permits back, so its rejections have no RetryAfter.
//
// Permits go to waiters in the order of the queue. A waiter for many permits holds up the waiters behind it until its
// permits are free, so with [OldestFirst] it is not starved. The zero Concurrency is not usable: TryAcquire and Acquire
// return an error. Make one with [NewConcurrency].
type Concurrency struct {
	tally tallyWord // while it is open, held, count and failed lack what it has
	near  [2]slot   // so few leases that are held at once need not share slots with other limiters
	held  int64     // permits; above the limit after that was lowered
	count int64     // leases granted
	lockedCommon

	idleSince int64 // when IdleDuration first found it unused after a use
	idleCount int64 // count - idleCount is how often permits were taken since then
}

// A tally is in one word what most calls need. While it is open, a call that finds its permits, a rejection of one permit and
// a Release change it by compare-and-swap, and take no lock. It is closed while the lock is held, while callers wait, and
// for good once the limiter is closed. Then every call takes the lock: no waiter is overtaken or forgotten, and code that
// holds the lock sees a limiter that stands still.
type tally uint64

const (
	tallyOpen    tally = 1 << iota
	tallyNoQueue       // Acquire does not wait

	oneRejection tally = 1 << 3  // 12 bits
	oneGrant     tally = 1 << 15 // 13 bits
	oneHeld      tally = 1 << 28 // 18 bits: the permits that are held
	oneOfLimit   tally = 1 << 46 // 18 bits
	mostPermits        = 1<<18 - 1

	// countFull are the highest bits of the two counts. If one is set, the next call takes the lock, which empties them.
	countFull = oneHeld>>1 | oneGrant>>1
)

// usable reports whether the tally can be changed without the lock.
func (t tally) usable() bool { return t&(tallyOpen|countFull) == tallyOpen }

func (t tally) limit() int64      { return int64(t / oneOfLimit) }
func (t tally) held() int64       { return int64(t / oneHeld & mostPermits) }
func (t tally) granted() int64    { return int64(t / oneGrant & (1<<13 - 1)) }
func (t tally) rejections() int64 { return int64(t / oneRejection & (1<<12 - 1)) }

// A tallyWord holds a tally.
type tallyWord struct{ word atomic.Uint64 }

func (w *tallyWord) load() tally              { return tally(w.word.Load()) }
func (w *tallyWord) swap(from, to tally) bool { return w.word.CompareAndSwap(uint64(from), uint64(to)) }

// lock takes the lock and closes the tally.
func (c *Concurrency) lock() {
	c.mu.Lock()
	if c.tally.load()&tallyOpen == 0 {
		return
	}
	t := tally(c.tally.word.Swap(0))
	c.held = t.held()
	c.count += t.granted()
	c.failed += t.rejections()
}

// unlock opens the tally, if no caller waits, and gives the lock back. A tally has no room for a limit above mostPermits.
func (c *Concurrency) unlock() {
	if c.queue.Empty() && !c.closed && 0 < c.limit && max(c.limit, c.held) <= mostPermits {
		t := tallyOpen | tally(c.limit)*oneOfLimit | tally(c.held)*oneHeld
		if c.queue.Limit() == 0 {
			t |= tallyNoQueue
		}
		c.tally.word.Store(uint64(t))
	}
	c.mu.Unlock()
}

// A slot is the owner of a lease, and is used again after the lease has been given back. Its serial number is odd while a
// lease has it. That number is the tag of the lease, by which copies of an old lease are told from the current one.
type slot struct {
	serial atomic.Int64
	from   *Concurrency
}

// slots holds slots for limiters whose near ones are in use. What from is belongs to the caller that has changed serial.
var slots = sync.Pool{New: func() any { return new(slot) }}

// lease returns a lease of n permits that were taken.
func (c *Concurrency) lease(n int) Lease {
	for i := range c.near {
		s := &c.near[i]
		if serial := s.serial.Load(); serial&1 == 0 && s.serial.CompareAndSwap(serial, serial+1) {
			return Lease{owner: s, n: n, tag: serial + 1}
		}
	}
	s := slots.Get().(*slot)
	s.from = c
	return Lease{owner: s, n: n, tag: s.serial.Add(1)}
}

// end ends the use of a slot, and returns the limiter, or nil if it was ended before.
func (s *slot) end(serial int64) *Concurrency {
	if !s.serial.CompareAndSwap(serial, serial+1) {
		return nil
	}
	c := s.from
	if s != &c.near[0] && s != &c.near[1] {
		s.from = nil
		slots.Put(s)
	}
	return c
}

func (s *slot) Release(n int, serial int64) {
	c := s.end(serial)
	if c == nil {
		return
	}
	for t := c.tally.load(); t.usable(); t = c.tally.load() {
		if c.tally.swap(t, t-tally(n)*oneHeld) {
			return
		}
	}
	c.lock()
	defer c.unlock()
	c.giveBack(n)
}

func (s *slot) Refund(n int, serial int64) {
	if c := s.end(serial); c != nil {
		c.refund(n)
	}
}

// NewConcurrency returns a limiter with all permits free. The error is a [weir.OptionsError].
func NewConcurrency(o ConcurrencyOptions) (*Concurrency, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Concurrency{
		idleSince:    moment(),
		lockedCommon: newLockedCommon(o.Limits()),
	}
	c.near[0].from, c.near[1].from = c, c
	c.mu.Lock()
	c.unlock()
	return c, nil
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
	for ctxErr == nil && n > 0 {
		t := c.tally.load()
		fits := int64(n) <= t.limit()-t.held()
		if !t.usable() || !fits && (n > 1 || wait && t&tallyNoQueue == 0) {
			break
		}
		switch {
		case fits && c.tally.swap(t, t+tally(n)*oneHeld+oneGrant):
			return c.lease(n), nil
		case !fits && c.tally.swap(t, t+oneRejection): // one permit is in range of every limiter
			if wait {
				return rejected(0, noPermit), nil
			}
			return Lease{}, nil
		}
	}
	c.lock()
	if ctxErr == nil && c.inRange(n) && !c.closed && mayPass(&c.queue, c.free(), n) {
		defer c.unlock()
		return c.grant(0, n), nil
	}
	return rejectOrQueue(ctx, ctxErr, c, 0, n, wait)
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
	c.lock()
	defer c.unlock()
	if err := c.usable(); err != nil {
		return err
	}
	setLimits(c, 0, l)
	return nil
}

// Statistics returns the current figures, or the last ones of a closed limiter.
func (c *Concurrency) Statistics() Statistics {
	c.lock()
	defer c.unlock()
	return Statistics{
		AvailablePermits: max(c.free(), 0),
		QueuedPermits:    c.queue.Permits(),
		SuccessfulLeases: c.count,
		FailedLeases:     c.failed,
	}
}

// IdleDuration returns for how long no permit has been held, as far as it was asked: the first call after a use returns 0, and later
// calls count from that one. So a Release need not read the clock.
func (c *Concurrency) IdleDuration() (idle time.Duration, ok bool) {
	c.lock()
	defer c.unlock()
	now := moment() // after the lock: the last use can have ended meanwhile
	if c.held > 0 {
		return 0, false
	}
	if c.count != c.idleCount {
		c.idleSince, c.idleCount = now, c.count
	}
	return time.Duration(max(now-c.idleSince, 0)), true
}

// Close closes the limiter: waiters are rejected, later calls return [ErrClosed], and releasing a lease does nothing.
// It returns nil, and can be called again.
func (c *Concurrency) Close() error {
	c.lock()
	defer c.unlock()
	closeEngine(c)
	return nil
}

func (c *Concurrency) catchUp(int64)      {}
func (c *Concurrency) free() int64        { return c.limit - c.held }
func (c *Concurrency) freeAt(int64) int64 { return never }

func (c *Concurrency) grant(_ int64, n int) Lease {
	c.count++
	if n == 0 {
		c.idleCount++
		return Lease{owner: (*zeroOwner)(c)}
	}
	c.held += int64(n)
	return c.lease(n)
}

// A zeroOwner is a limiter as the owner of its leases for zero permits, which have nothing to give back.
type zeroOwner Concurrency

func (c *zeroOwner) Lends() bool        { return false }
func (c *zeroOwner) Release(int, int64) {}
func (c *zeroOwner) Refund(int, int64)  { (*Concurrency)(c).refund(0) }

// refund takes back a lease as if it had not been granted.
func (c *Concurrency) refund(n int) {
	c.lock()
	defer c.unlock()
	if !c.closed {
		c.count--
		c.idleCount--
		c.giveBack(n)
	}
}

// giveBack takes back permits of a lease, and serves the queue.
func (c *Concurrency) giveBack(n int) {
	if c.closed || n == 0 {
		return
	}
	c.held -= int64(n)
	if !c.queue.Empty() {
		serve(c, 0)
	}
}

// Limits returns the limits in force.
func (c *Concurrency) Limits() rate.Limits {
	c.lock()
	defer c.unlock()
	return c.queue.Limits(rate.Limits{Kind: rate.Concurrency, Permits: int(c.limit)})
}

// Charge returns [errors.ErrUnsupported], because permits are lent; see [Charger].
func (c *Concurrency) Charge(ctx context.Context, n int) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	return Level{}, unsupported(c, "cannot be charged")
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (c *Concurrency) Peek(ctx context.Context, n int) (Lease, error) {
	ctxErr := ctx.Err()
	c.lock()
	return peek(ctx, ctxErr, c, 0, n)
}
