package limiter

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/rate"
)

// common has the fields that all limiters have. They are guarded by the limiter's lock.
type common struct {
	limit    int64
	failed   int64 // leases rejected
	queue    queue
	timer    *time.Timer // nil unless a waiter waits for time to pass
	armed    int64       // the moment for which timer is set
	closed   bool
	spinning bool // see spinTime
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

func newLockedCommon(l rate.Limits) lockedCommon { return lockedCommon{common: newCommon(l)} }

func newCommon(l rate.Limits) common {
	c := common{limit: int64(l.Permits)}
	c.queue.Configure(l)
	return c
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
	// freeAt returns the moment at which n permits are free if none are taken. It is in the past if they are, and never if
	// time alone will not help.
	freeAt(n int64) int64
}

// retryAfter returns how long a caller that was rejected with n permits now should wait, or 0 if time alone will not help.
func retryAfter(e engine, now int64, n int) time.Duration {
	if c, ok := e.(clocked); ok {
		return waitFor(freeBehindQueue(c, n), now)
	}
	return 0
}

// reject counts a rejection and returns its lease.
func reject(e engine, now int64, n int, reason *metadata) Lease {
	e.countFailed()
	return rejected(retryAfter(e, now, n), reason)
}

// closeEngine rejects all waiters and closes e, which is locked and up to date.
func closeEngine(e engine) {
	c := e.own()
	if c.closed {
		return
	}
	c.closed = true
	disarm(c)
	for w := range c.queue.All() {
		c.queue.Remove(w)
		answer(w, rejected(0, limiterClosed))
	}
}

// setLimits sets the limits of the permits and of the queue. It rejects waiters for more than the new limit, and serves
// the others.
func setLimits(e engine, now int64, l rate.Limits) {
	c := e.own()
	c.limit = int64(l.Permits)
	c.queue.Configure(l)
	for w := range c.queue.All() {
		if w.Permits > l.Permits {
			c.queue.Remove(w)
			c.failed++
			answer(w, rejected(0, limitLowered))
		}
	}
	serve(e, now)
}

// mayPass reports whether a newcomer can take n permits: enough are free, and no waiter is overtaken unless the order
// allows it. A request for 0 takes nothing, so it overtakes no waiter.
func mayPass(q *queue, free int64, n int) bool {
	return free >= weight(n) && (q.Empty() || n == 0 || q.Order() == NewestFirst)
}

// rejectOrQueue answers a call that was not granted at once: with an error if the limiter could not decide, and otherwise with a
// rejection, or a place in the queue if wait is true. e is locked; rejectOrQueue unlocks it. ctxErr is ctx's error from before
// the lock was taken.
func rejectOrQueue(ctx context.Context, ctxErr error, e engine, now int64, n int, wait bool) (Lease, error) {
	if err := undecided(ctx, ctxErr, e, n, wait); err != nil {
		return Lease{}, err
	}
	if wait && e.view().queue.Order() == Fair {
		return enqueueTenant(ctx, e, n)
	}
	if wait {
		return enqueue(ctx, e, now, n, Tenant{})
	}
	l := reject(e, now, n, noReason)
	e.unlock()
	return l, nil
}

// undecided returns the error of a call that e cannot decide: its context has ended, n is out of range, or e is closed. wait is true
// for Acquire. e is locked; undecided unlocks it if it returns an error.
func undecided(ctx context.Context, ctxErr error, e engine, n int, wait bool) error {
	c := e.view()
	limit, inRange, closed := c.limit, c.inRange(n), c.closed
	if ctxErr == nil && inRange && !closed {
		return nil
	}
	e.unlock() // before a method of ctx is called, which can panic
	switch {
	case ctxErr != nil && (wait || inRange):
		return cmp.Or(ctxerr.Of(ctx), ctxErr) // never nil, whatever ctx says now
	case !inRange:
		return permitCountError(n, limit)
	default:
		return ErrClosed
	}
}

// peek is Peek. e is locked; peek unlocks it. ctxErr is ctx's error from before the lock was taken.
func peek(ctx context.Context, ctxErr error, e engine, now int64, n int) (Lease, error) {
	if err := undecided(ctx, ctxErr, e, n, false); err != nil {
		return Lease{}, err
	}
	defer e.unlock()
	e.catchUp(now)
	if mayPass(&e.view().queue, e.free(), n) {
		return peeked(n), nil
	}
	return rejected(retryAfter(e, now, n), noReason), nil
}

// peeked returns the lease of a Peek at permits that would be granted.
func peeked(n int) Lease { return Lease{owner: noOwner{}, n: n} }

// serve grants what can be granted to waiters, and sets the timer for the next moment at which that can change.
func serve(e engine, now int64) {
	serveWaiters(e, now)
	arm(e, now)
}

// serveWaiters is serve without the timer. A caller that catches up with several lines calls it on each of them.
func serveWaiters(e engine, now int64) {
	q := &e.own().queue
	if q.Zeros() > 0 && e.free() > 0 {
		serveZeros(e, now)
	}
	for w := q.First(); w != nil && e.free() >= weight(w.Permits); w = q.First() {
		q.Serve(w)
		l := e.grant(now, w.Permits)
		if q.Order() == Fair {
			l = TenantKey.With(l, w.Tenant)
		}
		answer(w, l)
	}
}

// serveZeros grants the requests for 0 permits. They take nothing, so their place in the queue does not matter.
func serveZeros(e engine, now int64) {
	q := &e.own().queue
	for w := range q.All() {
		if w.Permits == 0 {
			q.Remove(w)
			answer(w, e.grant(now, 0))
		}
	}
}

// arm sets the timer for the next moment at which a waiter can be served, or stops it if there is none.
func arm(e engine, now int64) {
	c := e.own()
	due := int64(never)
	if w := c.queue.First(); w != nil {
		due = e.freeAt(weight(w.Permits))
		if c.queue.Zeros() > 0 {
			due = min(due, e.freeAt(1))
		}
	}
	switch {
	case due == never:
		disarm(c)
	case c.timer == nil:
		c.timer = time.AfterFunc(until(due, now), func() { tick(e) })
		c.armed = due
	case c.armed != due:
		c.timer.Reset(until(due, now))
		c.armed = due
	}
}

// disarm stops the timer.
func disarm(c *common) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// tick is the function of the timer. If the timer was stopped too late, tick does nothing.
func tick(e engine) {
	e.lock()
	defer e.unlock()
	if c := e.view(); c.closed || c.timer == nil {
		return
	}
	e.own().armed = never
	now := moment()
	e.catchUp(now)
	arm(e, now)
}
