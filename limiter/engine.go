package limiter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// common is what all limiters have in common, whatever their arithmetic. It is guarded by the limiter's lock.
type common struct {
	limit  int64
	failed int64 // leases rejected
	closed bool
	queue  queue
	timer  *time.Timer // nil unless a waiter waits for time to pass
	armed  int64       // the moment for which timer is set

	spinning bool // a waiter spins; see spinTime
}

// inRange reports whether n permits could ever be granted.
func (c *common) inRange(n int) bool { return int64(n) <= c.limit && (n > 0 || n == 0 && c.limit > 0) }

// reconfigurable returns the error of a Reconfigure that must not begin, or nil.
func (c *common) reconfigurable() error {
	switch {
	case c.limit == 0:
		return optionsError("", nil, notMadeText)
	case c.closed:
		return ErrClosed
	}
	return nil
}

// notMadeText is the error text of a limiter whose limit is 0: no constructor makes one.
const notMadeText = "the limiter is a zero value; make it with its constructor, such as NewTokenBucket"

// A core is common, and its lock, in a limiter that never shares them.
type core struct {
	mu sync.Mutex
	common
}

func newCore(limit, queueLimit int, order QueueOrder) core {
	return core{common: common{limit: int64(limit), queue: queue{limit: queueLimit, order: order}}}
}

func (c *core) lock()         { c.mu.Lock() }
func (c *core) unlock()       { c.mu.Unlock() }
func (c *core) view() *common { return &c.common }
func (c *core) own() *common  { return &c.common }
func (c *core) countFailed()  { c.failed++ }

// An engine is a limiter as the code that all limiters share sees it. All methods but lock are called with the lock
// held. Each limiter grants the common case itself, where an interface call would cost too much; this code begins where
// permits are missing.
type engine interface {
	lock()
	unlock()
	// view is for reading only: buckets can share it.
	view() *common
	// own is view for writing. A bucket that shares its state gets one of its own.
	own() *common
	countFailed()
	// catchUp brings the permits to the moment now, and serves the queue if permits came back.
	catchUp(now int64)
	// free returns how many permits could be taken; it can be negative.
	free() int64
	// grant takes n permits that are free, and counts the lease.
	grant(now int64, n int) Lease
	// when returns the moment at which n permits are free if none are taken.
	when(n int) int64
	// retryAfter returns how long a caller that was refused n permits now should wait, or 0 if time alone will not
	// help.
	retryAfter(now int64, n int) time.Duration
}

// A clocked limiter is an engine whose idle duration follows from the clock: a bucket or a window.
type clocked interface {
	engine
	// idleFor returns for how long the limiter has been idle at the moment now.
	idleFor(now int64) (idle time.Duration, ok bool)
	// close closes the limiter, which is up to date.
	close()
}

// idleAsOf is IdleDuration at the moment now.
func idleAsOf(c clocked, now int64) (idle time.Duration, ok bool) {
	c.lock()
	defer c.unlock()
	return c.idleFor(now)
}

// closeIfIdle closes the limiter and returns true if it has been idle for more than that many nanoseconds.
func closeIfIdle(c clocked, longer, now int64) bool {
	c.lock()
	defer c.unlock()
	if idle, ok := c.idleFor(now); !ok || int64(idle) <= longer {
		return false
	}
	c.close()
	return true
}

// The metadata of rejections is made once, so that rejecting allocates nothing.
var (
	noReason      *metadata
	noPermit      = &metadata{name: ReasonKey.name, value: ReasonNoPermit}
	queueLimit    = &metadata{name: ReasonKey.name, value: ReasonQueueLimit}
	limitLowered  = &metadata{name: ReasonKey.name, value: ReasonLimitLowered}
	limiterClosed = &metadata{name: ReasonKey.name, value: ReasonClosed}
)

// mayPass reports whether a newcomer can take n permits: enough are free, and no waiter is overtaken unless the order
// allows it. A request for 0 takes nothing, so it overtakes no waiter.
func mayPass(q *queue, free int64, n int) bool {
	return free >= weight(n) && (q.empty() || n == 0 || q.order == NewestFirst)
}

// refuse answers a call that was not granted at once: with an error if the limiter could not decide, and otherwise with a
// rejection, or a place in the queue if wait is true. e is locked; refuse unlocks it. ctxErr is ctx's error from before
// the lock was taken.
func refuse(ctx context.Context, ctxErr error, e engine, now int64, n int, wait bool) (Lease, error) {
	c := e.view()
	limit, inRange, closed := c.limit, c.inRange(n), c.closed
	switch {
	case ctxErr != nil || !inRange || closed:
	case wait:
		return join(ctx, e, now, n)
	default:
		l := reject(e, now, n, noReason)
		e.unlock()
		return l, nil
	}
	e.unlock() // before a method of ctx is called, which can panic
	switch {
	case ctxErr != nil && (wait || inRange):
		return Lease{}, contextError(ctx)
	case !inRange:
		return Lease{}, permitCountError(n, limit)
	default:
		return Lease{}, ErrClosed
	}
}

// join puts the caller of an Acquire into the queue and waits, or rejects it if there is no room. e is locked; join
// unlocks it.
func join(ctx context.Context, e engine, now int64, n int) (Lease, error) {
	c := e.view()
	if !c.queue.fits(n) && (c.queue.order == OldestFirst || weight(n) > int64(c.queue.limit)) {
		reason := queueLimit
		if c.queue.limit == 0 {
			reason = noPermit
		}
		l := reject(e, now, n, reason)
		e.unlock()
		return l, nil
	}
	w := newWaiter(n)
	admit(e, now, w)
	due, early := shouldSpin(e.own(), now)
	e.unlock()
	if early {
		spin(e, w, due)
	}
	return await(ctx, e, w)
}

// A timer that is due in a few microseconds fires a millisecond late on an idle processor, because the runtime polls the
// network in the meantime and rounds the wait up. So if a permit comes back within spinTime, one of the waiters yields its
// processor until then instead of sleeping. For each permit, that costs at most about spinTime of processor time, which is
// what sleeping and waking up would cost. spinTurns bounds it if the clock stands still.
const (
	spinTime  = int64(10 * time.Microsecond)
	spinTurns = 200
)

// shouldSpin reports whether a caller that now joins the queue should spin, and until when. It never does in a
// testing/synctest bubble, where moments are negative and the clock stands still while a goroutine runs.
func shouldSpin(c *common, now int64) (due int64, spin bool) {
	if c.timer == nil || c.spinning || now < 0 || c.armed-now > spinTime {
		return 0, false
	}
	c.spinning = true
	return c.armed, true
}

// spin yields until the moment due or until w is answered, and then does what the timer would do.
func spin(e engine, w *waiter, due int64) {
	for turn := 0; turn < spinTurns && moment() < due && len(w.ready) == 0; turn++ {
		runtime.Gosched()
	}
	e.lock()
	defer e.unlock()
	c := e.own()
	c.spinning = false
	if !c.closed {
		e.catchUp(moment())
	}
}

// admit puts w into the queue. If there is no room, the oldest waiters leave first. Their RetryAfter takes w into
// account.
func admit(e engine, now int64, w *waiter) {
	q := &e.own().queue
	var out []*waiter
	for !q.fits(w.n) {
		oldest := q.oldest
		q.remove(oldest)
		out = append(out, oldest)
	}
	q.push(w)
	for _, o := range out {
		o.answer(reject(e, now, o.n, queueLimit))
	}
	arm(e, now)
}

// await returns the answer to w, or takes w out of the queue when ctx ends. If w was answered at the same time, that
// answer stands, because it has been counted. So does a grant that was due before ctx ended, if the timer is late.
func await(ctx context.Context, e engine, w *waiter) (Lease, error) {
	select {
	case <-w.ready:
		return w.take(), nil
	case <-doneOf(ctx, e, w):
	}
	if answered := leave(e, w); answered {
		<-w.ready
		return w.take(), nil
	}
	w.take()
	return Lease{}, contextError(ctx)
}

// doneOf returns ctx.Done(). If that panics, w leaves the queue, and what it was granted in the meantime is refunded.
func doneOf(ctx context.Context, e engine, w *waiter) <-chan struct{} {
	returned := false
	defer func() {
		if !returned && leave(e, w) {
			<-w.ready
			w.lease.Refund()
		}
	}()
	done := ctx.Done()
	returned = true
	return done
}

// leave takes w out of the queue and serves the waiters behind it. It reports whether w has been answered instead.
func leave(e engine, w *waiter) (answered bool) {
	e.lock()
	defer e.unlock()
	now := moment()
	if w.queued {
		e.catchUp(now)
	}
	if !w.queued {
		return true
	}
	e.own().queue.remove(w)
	serve(e, now)
	return false
}

// reject counts a rejection and returns its lease.
func reject(e engine, now int64, n int, reason *metadata) Lease {
	e.countFailed()
	return rejected(e.retryAfter(now, n), reason)
}

// serve grants what can be granted to waiters, and sets the timer for the next moment at which that can change.
func serve(e engine, now int64) {
	serveWaiters(e, now)
	arm(e, now)
}

// serveWaiters is serve without the timer, for one of several moments in a row.
func serveWaiters(e engine, now int64) {
	q := &e.own().queue
	if q.zeros > 0 && e.free() > 0 {
		serveZeros(e, now)
	}
	for w := q.first(); w != nil && e.free() >= weight(w.n); w = q.first() {
		q.remove(w)
		w.answer(e.grant(now, w.n))
	}
}

// serveZeros grants the requests for 0 permits. They take nothing, so their place in the queue does not matter.
func serveZeros(e engine, now int64) {
	q := &e.own().queue
	for w := q.oldest; w != nil && q.zeros > 0; {
		next := w.newer
		if w.n == 0 {
			q.remove(w)
			w.answer(e.grant(now, 0))
		}
		w = next
	}
}

// arm sets the timer for the next moment at which a waiter can be served, or stops it if there is none.
func arm(e engine, now int64) {
	c := e.own()
	at := int64(never)
	if w := c.queue.first(); w != nil {
		at = e.when(max(w.n, 1))
		if c.queue.zeros > 0 {
			at = min(at, e.when(1))
		}
	}
	switch {
	case at == never:
		disarm(c)
	case c.timer == nil:
		c.timer = time.AfterFunc(until(at, now), func() { tick(e) })
		c.armed = at
	case c.armed != at:
		c.timer.Reset(until(at, now))
		c.armed = at
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

// relimit sets the limits of the permits and of the queue, rejects waiters for more than the new limit, and serves the
// others.
func relimit(e engine, now, limit int64, queue int, order QueueOrder) {
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

// permitCountError returns the error of a request for n permits that are out of range.
func permitCountError(n int, limit int64) error {
	if n < 0 {
		return fmt.Errorf("%w: %d is negative", ErrPermitCount, n)
	}
	if limit == 0 {
		return fmt.Errorf("%w: %s", ErrPermitCount, notMadeText)
	}
	return fmt.Errorf("%w: %d is above the limit of %d", ErrPermitCount, n, limit)
}

// argumentError returns the error that a limiter returns before it looks at its permits, or nil.
func argumentError(ctx context.Context, n int, wait bool) error {
	done := ctx.Err() != nil
	switch {
	case done && (wait || n >= 0):
		return contextError(ctx)
	case n < 0:
		return permitCountError(n, 0)
	}
	return nil
}

// contextError returns the error of a context that is done, with its cause if one was set.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
