package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
)

// acquire is Acquire for a key.
func (c *core) acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.mayAsk(ctx, n, true); err != nil {
		return limiter.Lease{}, err
	}
	key = storedKey(key)
	room := c.queueing.Load().limit > 0
	lease, from := c.atOnce(key, n, room)
	for {
		if from == fromStore {
			var err error
			if lease, err = c.take(ctx, key, n, room); err != nil {
				return limiter.Lease{}, err
			}
		}
		if answers(lease) {
			return c.counted(lease), nil
		}
		w, lease := c.join(ctx, key, n, lease, from)
		switch {
		case w != nil:
			return w.wait(ctx)
		case from == fromRivals && !answers(lease) && lease.Reason() == "":
			from = fromStore // no caller is rejected for the sake of rivals
		default:
			return c.counted(lease), nil
		}
	}
}

// A source is what has rejected a caller.
type source uint8

const (
	fromStore  source = iota // or it was not asked yet
	fromCell                 // what is known of the key, or its queue
	fromRivals               // only that other instances come first
)

// join puts a caller who was rejected into the queue, or rejects it for good. One for which there
// is no room, and who was rejected only because of rivals, gets a rejection without a reason.
func (c *core) join(ctx context.Context, key string, n int, rejected limiter.Lease, from source) (*waiter, limiter.Lease) {
	q := c.queueing.Load()
	hint, _ := rejected.RetryAfter()
	if q.limit == 0 && from == fromRivals {
		return nil, limiter.Lease{}
	}
	if q.limit == 0 { // no need for a cell
		if left, ok := rejected.Remaining(); ok {
			return nil, limiter.RejectedKnowing(hint, limiter.ReasonNoPermit, left)
		}
		return nil, limiter.Rejected(hint, limiter.ReasonNoPermit)
	}
	gone := ctx.Done()
	ce := c.cells.lock(key, true)
	if ce == nil && from == fromRivals {
		return nil, limiter.Lease{}
	}
	if ce == nil {
		return nil, limiter.Rejected(hint, limiter.ReasonQueueLimit)
	}
	defer ce.mu.Unlock()
	if c.closed.Load() {
		return nil, limiter.Rejected(0, limiter.ReasonClosed)
	}
	if int64(n) > c.limits().Permits { // lowered since, and those who waited then have been told
		return nil, limiter.Rejected(0, limiter.ReasonLimitLowered)
	}
	if from != fromStore {
		hint = 0 // that was behind a queue which may be gone
	}
	if from == fromRivals && int64(q.limit)-ce.queue.room < weight(n) {
		return nil, limiter.Lease{}
	}
	var out []*waiter
	if q.order == limiter.NewestFirst && weight(n) <= int64(q.limit) {
		out = ce.queue.makeRoom(int64(q.limit) - weight(n))
	}
	if int64(q.limit)-ce.queue.room < weight(n) {
		wait := ce.waitBehind(n)
		if wait == 0 && !c.lends {
			wait = hint
		}
		return nil, limiter.Rejected(wait, limiter.ReasonQueueLimit)
	}
	w := &waiter{ce: ce, n: n, gone: gone, ready: make(chan struct{})}
	before := ce.queue.newest
	ce.queue.push(w)
	for _, w := range out { // they are told how long it takes behind those who are here now
		w.lease = limiter.Rejected(ce.waitBehind(w.n), limiter.ReasonQueueLimit)
		close(w.ready)
	}
	now := time.Now()
	// A queue for leases may only be giving way.
	if from == fromStore || from == fromCell && (!c.lends || !ce.rivals.attends(now)) {
		ce.rivals.begin(now)
	}
	c.waited.Store(now.UnixNano())
	ce.pump(w, before, hint)
	return w, limiter.Lease{}
}

// wait waits for the answer, or for the context to end.
func (w *waiter) wait(ctx context.Context) (limiter.Lease, error) {
	select {
	case <-w.ready:
	case <-w.gone:
		if w.leave() {
			return limiter.Lease{}, contextError(ctx)
		}
		<-w.ready // the answer was there first
	}
	if w.lease.Reason() == limiter.ReasonClosed {
		return w.lease, nil
	}
	return w.ce.c.counted(w.lease), nil
}

func (w *waiter) leave() bool {
	ce := w.ce
	ce.mu.Lock()
	defer ce.mu.Unlock()
	if !w.queued {
		return false
	}
	ce.queue.remove(w)
	ce.wake() // it may have held up others
	return true
}

// pump sees to it that somebody serves the queue, in which w is the newest. The cell is
// locked, and w was rejected a moment ago; hint is when it need not be again, 0: not known.
func (ce *cell) pump(w, before *waiter, hint time.Duration) {
	if ce.pumping {
		less := ce.c.queueing.Load().order == limiter.NewestFirst && before != nil && w.n < before.n
		if before == nil || less || w.n == 0 && ce.queue.zeros == 1 {
			ce.wake() // whoever is served next needs less
		}
		return
	}
	wait := hint
	if now := time.Now(); ce.reject.of(w.n, now) {
		wait = ce.last.wait(int64(w.n), now)
	}
	if ce.c.lends {
		wait = 0 // what was released meanwhile, it was not told of
	} else {
		wait = ce.turn(wait)
	}
	select {
	case <-ce.wakeup:
	default:
	}
	ce.pumping = true
	go ce.serveAll(wait)
}

// serveAll serves the queue until it is empty. If a backend ends the goroutine, another one carries on.
func (ce *cell) serveAll(wait time.Duration) {
	returned := false
	defer func() {
		if !returned {
			go ce.serveAll(ce.c.s.o.ProbeInterval)
		}
	}()
	ce.serveOn(wait)
	returned = true
}

func (ce *cell) serveOn(wait time.Duration) {
	for more := true; more; {
		if wait > 0 {
			ce.rest(wait)
		}
		if wait = ce.resting(); wait > 0 {
			continue
		}
		if !ce.giveWay() {
			return
		}
		wait, more = ce.serveSome()
	}
}

// serveSome is one round of serveAll. Close waits until it is over: what was granted to
// somebody who has left is on its way back then.
func (ce *cell) serveSome() (wait time.Duration, more bool) {
	ce.c.s.busy.Add(1)
	defer ce.c.s.lessBusy()
	ws, zeros, more := ce.waiting()
	if !more {
		return 0, false
	}
	if len(ws) == 0 && !zeros {
		return time.Second, true // all have left, and each wakes this goroutine when it is out of the queue
	}
	return ce.serve(ws, zeros), true
}

// waiting returns whom to ask for; not ok: nobody waits any more.
func (ce *cell) waiting() (ws []*waiter, zeros bool, ok bool) {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	if ce.queue.empty() {
		ce.pumping = false
		return nil, false, false
	}
	for w := range ce.queue.all(ce.c.queueing.Load().order) {
		if w.n > 0 && !over(w.gone) {
			ws = append(ws, w)
		}
		if len(ws) == exactWaiters {
			break
		}
	}
	return ws, ce.queue.zeros > 0, true
}
