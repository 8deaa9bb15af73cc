package limiter

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A waiter is a call of Acquire in a limiter's queue. All but ready is guarded by the limiter's lock; lease belongs to
// the caller once ready was signalled.
type waiter struct {
	n            int
	queued       bool
	lease        Lease         // the answer
	ready        chan struct{} // one signal: lease is there
	older, newer *waiter
}

// waiters holds waiters for reuse, without their channel: a channel belongs to the testing/synctest bubble in which it
// was made, and a waiter is used again outside of it.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(n int) *waiter {
	w := waiters.Get().(*waiter)
	w.n = n
	w.ready = make(chan struct{}, 1)
	return w
}

// answer gives the waiting Acquire its lease. The waiter then belongs to that call, and answer must be its last use
// elsewhere.
func (w *waiter) answer(l Lease) {
	w.lease = l
	w.ready <- struct{}{}
}

// result returns the answer and puts the waiter back into the pool. The caller has received from ready, or has left the
// queue.
func (w *waiter) result() Lease {
	l := w.lease
	*w = waiter{}
	waiters.Put(w)
	return l
}

// queue has the waiters in the order in which they came. It is guarded by the limiter's lock.
type queue struct {
	oldest, newest *waiter
	order          QueueOrder
	limit          int
	permits        int64 // the sum of the permits waited for
	taken          int64 // how much of limit the waiters take: the sum of their weights
	zeros          int   // how many waiters wait for 0 permits
	length         int
}

func (q *queue) empty() bool { return q.oldest == nil }

// weight returns how much of the queue's limit a request for n permits takes.
func weight(n int) int64 { return int64(max(n, 1)) }

// fits reports whether there is room for n. The limit can be below what is taken, after it was lowered.
func (q *queue) fits(n int) bool { return int64(q.limit)-q.taken >= weight(n) }

// first returns the waiter that is served next, or nil.
func (q *queue) first() *waiter {
	if q.order == NewestFirst {
		return q.newest
	}
	return q.oldest
}

// needs returns how many permits must be free for a waiter to be served. The queue is not empty.
func (q *queue) needs() int64 {
	if q.zeros > 0 {
		return 1
	}
	return weight(q.first().n)
}

// after returns the waiter that is served after w.
func (q *queue) after(w *waiter) *waiter {
	if q.order == NewestFirst {
		return w.older
	}
	return w.newer
}

// push adds the newest waiter.
func (q *queue) push(w *waiter) {
	w.queued = true
	w.older = q.newest
	if q.newest != nil {
		q.newest.newer = w
	} else {
		q.oldest = w
	}
	q.newest = w
	q.count(w, 1)
}

// remove takes a waiter out, wherever it is.
func (q *queue) remove(w *waiter) {
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		q.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		q.newest = w.older
	}
	w.older, w.newer, w.queued = nil, nil, false
	q.count(w, -1)
}

// count adds a waiter to the sums with sign 1, and takes it out of them with sign -1.
func (q *queue) count(w *waiter, sign int64) {
	q.length += int(sign)
	q.permits += sign * int64(w.n)
	q.taken += sign * weight(w.n)
	if w.n == 0 {
		q.zeros += int(sign)
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
