package limiter

import (
	"context"
	"runtime"
	"time"
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
		return enqueue(ctx, e, now, n)
	default:
		l := reject(e, now, n, noReason)
		e.unlock()
		return l, nil
	}
	e.unlock() // before a method of ctx is called, which can panic
	return Lease{}, callError(ctx, ctxErr, n, limit, inRange, wait)
}

// callError returns the error of a call that a limiter could not decide: the limiter is closed, unless the arguments say
// otherwise. wait is true for Acquire.
func callError(ctx context.Context, ctxErr error, n int, limit int64, inRange, wait bool) error {
	switch {
	case ctxErr != nil && (wait || inRange):
		return contextError(ctx)
	case !inRange:
		return permitCountError(n, limit)
	default:
		return ErrClosed
	}
}

// enqueue puts the caller of an Acquire into the queue and waits, or rejects it if there is no room. e is locked;
// enqueue unlocks it.
func enqueue(ctx context.Context, e engine, now int64, n int) (Lease, error) {
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
	due, ok := beginSpin(e.own(), now)
	e.unlock()
	if ok {
		spin(e, w, due)
	}
	return await(ctx, e, w)
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

// await returns the answer to w, or takes w out of the queue when ctx ends. If w was answered at the same time, await
// returns the answer, because it has been counted. If the timer is late and w was due before ctx ended, w is granted
// all the same, on the line on which it was due.
func await(ctx context.Context, e engine, w *waiter) (Lease, error) {
	select {
	case <-w.ready:
		return w.result(), nil
	case <-doneOf(ctx, e, w):
	}
	if answered := leave(e, w); answered {
		<-w.ready
		return w.result(), nil
	}
	w.result()
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

// A timer that is due in a few microseconds fires a millisecond late on an idle processor, because the runtime polls the
// network in the meantime and rounds the wait up. So if a permit comes back within spinTime, one of the waiters yields its
// processor until then instead of sleeping. For each permit, that costs at most about spinTime of processor time, which is
// what sleeping and waking up would cost. spinTurns bounds it if the clock stands still.
const (
	spinTime  = int64(10 * time.Microsecond)
	spinTurns = 200
)

// beginSpin reports whether a caller that has just joined the queue has to spin until due. At most one caller spins at
// a time. No caller spins in a testing/synctest bubble, where moments are negative and the clock stands still while a
// goroutine runs.
func beginSpin(c *common, now int64) (due int64, ok bool) {
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
