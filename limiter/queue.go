package limiter

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/waitlist"
)

// A waiter is a call of Acquire in a limiter's queue. Its value is the answer.
type waiter = waitlist.Waiter[Lease]

// waiters holds waiters for reuse, without their channel: a channel belongs to the testing/synctest bubble in which it
// was made, and a waiter is used again outside of it.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(n int, t Tenant) *waiter {
	w := waiters.Get().(*waiter)
	w.Permits, w.Tenant = n, t
	w.Ready = make(chan struct{})
	return w
}

// answer gives the waiting Acquire its lease. The waiter then belongs to that call, and answer must be its last use
// elsewhere.
func answer(w *waiter, l Lease) {
	w.Value = l
	close(w.Ready)
}

func answered(w *waiter) bool {
	select {
	case <-w.Ready:
		return true
	default:
		return false
	}
}

// result returns the answer and puts the waiter back into the pool. The caller has received from Ready, or has left the
// queue.
func result(w *waiter) Lease {
	l := w.Value
	*w = waiter{}
	waiters.Put(w)
	return l
}

// queue has the waiters of a limiter. It is guarded by the limiter's lock.
type queue struct{ waitlist.List[Lease] }

// needs returns how many permits must be free for a waiter to be served. The queue is not empty.
func (q *queue) needs() int64 {
	if q.Zeros() > 0 {
		return 1
	}
	return weight(q.First().Permits)
}

// weight returns how many permits must be free for a request for n.
func weight(n int) int64 { return waitlist.Weight(n) }

// enqueueTenant is enqueue for a queue with the order [Fair]. It looks for the caller's tenant while e is not locked, because a method
// of ctx can panic, or call the limiter; then permits can be free, and the limits others.
func enqueueTenant(ctx context.Context, e engine, n int) (Lease, error) {
	e.unlock()
	tenant := TenantOf(ctx)
	now := moment()
	e.lock()
	if err := undecided(ctx, nil, e, n, true); err != nil {
		return Lease{}, err
	}
	e.catchUp(now)
	if mayPass(&e.view().queue, e.free(), n) {
		defer e.unlock()
		return e.grant(now, n), nil
	}
	return enqueue(ctx, e, now, n, tenant)
}

// enqueue puts the caller of an Acquire into the queue and waits, or rejects it if there is no room. Waiters that leave to make
// room are rejected, with a RetryAfter behind the newcomer. e is locked; enqueue unlocks it.
func enqueue(ctx context.Context, e engine, now int64, n int, tenant Tenant) (Lease, error) {
	c := e.view()
	evicted, ok := c.queue.MakeRoom(n, tenant)
	if !ok {
		reason := queueLimit
		if c.queue.Limit() == 0 {
			reason = noPermit
		}
		l := reject(e, now, n, reason)
		e.unlock()
		return l, nil
	}
	w := newWaiter(n, tenant)
	c = e.own()
	c.queue.Push(w)
	for _, out := range evicted {
		answer(out, reject(e, now, out.Permits, queueLimit))
	}
	if c.queue.Order() == Fair {
		serve(e, now) // w may be first now, and need fewer permits than who was
	} else {
		arm(e, now)
	}
	due, ok := beginSpin(c, now)
	e.unlock()
	if ok {
		spin(e, w, due)
	}
	return await(ctx, e, w)
}

// await returns the answer to w, or takes w out of the queue when ctx ends. If w was answered at the same time, await
// returns the answer, because it has been counted. If the timer is late and w was due before ctx ended, w is granted
// all the same, on the line on which it was due.
func await(ctx context.Context, e engine, w *waiter) (Lease, error) {
	select {
	case <-w.Ready:
		return result(w), nil
	case <-doneOf(ctx, e, w):
	}
	if answered := leave(e, w); answered {
		<-w.Ready
		return result(w), nil
	}
	result(w)
	return Lease{}, ctxerr.Of(ctx)
}

// doneOf returns ctx.Done(). If that panics, w leaves the queue, and what it was granted in the meantime is refunded.
func doneOf(ctx context.Context, e engine, w *waiter) <-chan struct{} {
	returned := false
	defer func() {
		if !returned && leave(e, w) {
			<-w.Ready
			w.Value.Refund()
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
	if w.Listed() {
		e.catchUp(now)
	}
	if !e.own().queue.Remove(w) {
		return true
	}
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
	for turn := 0; turn < spinTurns && moment() < due && !answered(w); turn++ {
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
