package limiter

import (
	"sync"
	"time"
)

// common has the fields that all limiters have. They are guarded by the limiter's lock.
type common struct {
	limit    int64
	failed   int64 // leases rejected
	closed   bool
	queue    queue
	timer    *time.Timer // nil unless a waiter waits for time to pass
	armed    int64       // the moment for which timer is set
	spinning bool        // see spinTime
}

// inRange reports whether n permits could ever be granted.
func (c *common) inRange(n int) bool { return int64(n) <= c.limit && (n > 0 || n == 0 && c.limit > 0) }

// changeable returns the error of a Reconfigure or a Charge that must not begin, or nil.
func (c *common) changeable() error {
	switch {
	case c.limit == 0:
		return optionsError("", nil, notMadeText)
	case c.closed:
		return ErrClosed
	}
	return nil
}

// lockedCommon is common with a lock. The limiters that embed it share neither; a bucket can share its common, see
// [bucket].
type lockedCommon struct {
	mu sync.Mutex
	common
}

func newLockedCommon(limit, queueLimit int, order QueueOrder) lockedCommon {
	return lockedCommon{common: common{limit: int64(limit), queue: queue{limit: queueLimit, order: order}}}
}

func (c *lockedCommon) lock()         { c.mu.Lock() }
func (c *lockedCommon) unlock()       { c.mu.Unlock() }
func (c *lockedCommon) view() *common { return &c.common }
func (c *lockedCommon) own() *common  { return &c.common }
func (c *lockedCommon) countFailed()  { c.failed++ }

// An engine is what the code of the queue and its timer needs of a limiter. That code is the same for all limiters and
// runs when permits are missing. Each limiter decides the common case itself, where an interface call would cost too
// much. All methods but lock are called with the lock held.
type engine interface {
	lock()
	unlock()
	// view returns the common fields for reading. Buckets can share them.
	view() *common
	// own returns the common fields for writing. A bucket that shares its state first gets one of its own.
	own() *common
	countFailed()
	// catchUp brings the permits to the moment now, and serves the queue if permits came back.
	catchUp(now int64)
	// free returns how many permits could be taken; it can be negative.
	free() int64
	// grant takes n permits that are free, and counts the lease.
	grant(now int64, n int) Lease
	// timerFor returns the moment at which n permits are free if none are taken. If time alone will not help, or the
	// limiter is replenished by hand, it returns the constant never.
	timerFor(n int) int64
	// retryAfter returns how long a caller that was refused n permits now should wait, or 0 if time alone will not
	// help.
	retryAfter(now int64, n int) time.Duration
}

// A clocked limiter is an engine whose permits come back as time passes: a bucket or a window. The functions below are
// its methods that need not be fast.
type clocked interface {
	engine
	// counts returns how many leases were granted and rejected.
	counts() (granted, failed int64)
	// idleFor returns for how long the limiter has been idle at the moment now.
	idleFor(now int64) (idle time.Duration, ok bool)
	// close closes the limiter, which is up to date.
	close()
}

// statisticsOf is Statistics.
func statisticsOf(c clocked) Statistics {
	now := moment()
	c.lock()
	defer c.unlock()
	if !c.view().closed {
		c.catchUp(now)
	}
	granted, failed := c.counts()
	return Statistics{
		AvailablePermits: max(c.free(), 0),
		QueuedPermits:    c.view().queue.permits,
		SuccessfulLeases: granted,
		FailedLeases:     failed,
	}
}

// closeClocked is Close.
func closeClocked(c clocked) error {
	now := moment()
	c.lock()
	defer c.unlock()
	if !c.view().closed {
		c.catchUp(now)
		c.close()
	}
	return nil
}

// idleAsOf is IdleDuration at the moment now.
func idleAsOf(c clocked, now int64) (idle time.Duration, ok bool) {
	c.lock()
	defer c.unlock()
	return c.idleFor(now)
}

// closeIfIdle closes the limiter and returns true if it has been idle for more than minIdle nanoseconds.
func closeIfIdle(c clocked, minIdle, now int64) bool {
	c.lock()
	defer c.unlock()
	if idle, ok := c.idleFor(now); !ok || int64(idle) <= minIdle {
		return false
	}
	c.close()
	return true
}

// reject counts a rejection and returns its lease.
func reject(e engine, now int64, n int, reason *metadata) Lease {
	e.countFailed()
	return rejected(e.retryAfter(now, n), reason)
}

// closeEngine rejects all waiters and closes e, which is locked and up to date.
func closeEngine(e engine) {
	c := e.own()
	if c.closed {
		return
	}
	c.closed = true
	disarm(c)
	for w := c.queue.oldest; w != nil; w = c.queue.oldest {
		c.queue.remove(w)
		w.answer(rejected(0, limiterClosed))
	}
}

// setLimits sets the limits of the permits and of the queue. It rejects waiters for more than the new limit, and serves
// the others.
func setLimits(e engine, now, limit int64, queue int, order QueueOrder) {
	c := e.own()
	c.limit, c.queue.limit, c.queue.order = limit, queue, order
	for w := c.queue.oldest; w != nil; {
		next := w.newer
		if int64(w.n) > limit {
			c.queue.remove(w)
			c.failed++
			w.answer(rejected(0, limitLowered))
		}
		w = next
	}
	serve(e, now)
}

// maxDebt caps what a limiter can owe, so that sums do not overflow.
const maxDebt = never / 2
