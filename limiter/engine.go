package limiter

import (
	"sync"
	"time"

	"github.com/weir-go/weir/rate"
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
	manual   bool        // time passes only in TryReplenish
	asOf     int64       // manual: the moment of the last TryReplenish
}

// reached returns the moment up to which time has passed for this limiter.
func (c *common) reached(now int64) int64 {
	if c.manual {
		return c.asOf
	}
	return now
}

// inRange reports whether n permits could ever be granted.
func (c *common) inRange(n int) bool { return int64(n) <= c.limit && (n > 0 || n == 0 && c.limit > 0) }

// usable returns the error of a Reconfigure or a Charge that must not begin, or nil.
func (c *common) usable() error {
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

func newLockedCommon(limit int64, queueLimit int, order QueueOrder) lockedCommon {
	return lockedCommon{common: common{limit: limit, queue: queue{limit: queueLimit, order: order}}}
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
func setLimits(e engine, now int64, l rate.Limits) {
	c := e.own()
	c.limit, c.queue.limit, c.queue.order = int64(l.Permits), l.QueueLimit, l.QueueOrder
	for w := c.queue.oldest; w != nil; {
		next := w.newer
		if w.n > l.Permits {
			c.queue.remove(w)
			c.failed++
			w.answer(rejected(0, limitLowered))
		}
		w = next
	}
	serve(e, now)
}
