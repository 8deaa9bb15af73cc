package store

import (
	"errors"
	"math"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// maxServed is how many waiters a round of serving asks for at most.
const maxServed = 64

// startServing makes sure that serveLoop runs, or wakes it. w is the newest waiter and was rejected just now; before is
// the newest one before it. hint is how long until it is worth asking again, 0 if not known. The keyState is locked.
func (ks *keyState) startServing(w, before *waiter, hint time.Duration) {
	if ks.serving {
		less := ks.c.limits().QueueOrder == limiter.NewestFirst && before != nil && w.Permits < before.Permits
		if before == nil || less || w.Permits == 0 && ks.queue.Zeros() == 1 {
			ks.wake() // the next waiter to be served needs fewer permits than the one before
		}
		return
	}
	wait := hint
	if now := time.Now(); ks.rejection.covers(w.Permits, now) || ks.lastAnswer.rejects(int64(w.Permits), now) {
		wait = ks.lastAnswer.untilAvailable(int64(w.Permits), now)
	}
	if ks.c.leased {
		wait = 0 // the store sends no notice of releases before a waiting caller has asked
	} else {
		wait = ks.pauseUntilTurn(wait)
	}
	if ks.wakeup == nil {
		ks.wakeup = make(chan struct{}, 1)
	}
	select {
	case <-ks.wakeup:
	default:
	}
	ks.serving = true
	go ks.serveLoop(wait)
}

// serveLoop serves the queue until it is empty, in rounds: serveUntilEmpty waits before each round, serveRound chooses the
// waiters, and serve asks for them. If a backend ends the goroutine, another one continues.
func (ks *keyState) serveLoop(wait time.Duration) {
	returned := false
	defer func() {
		if !returned {
			go ks.serveLoop(ks.c.s.o.ProbeInterval)
		}
	}()
	ks.serveUntilEmpty(wait)
	returned = true
}

func (ks *keyState) serveUntilEmpty(wait time.Duration) {
	for more := true; more; {
		if wait > 0 {
			ks.waitForWakeup(wait)
		}
		if wait = ks.restPause(); wait > 0 {
			continue
		}
		if !ks.waitForTurn() {
			return
		}
		wait, more = ks.serveRound()
	}
}

// serveRound is one round of serveLoop. Close waits for it, because it gives back what was granted to callers that have
// left.
func (ks *keyState) serveRound() (wait time.Duration, more bool) {
	ks.c.s.calls.Begin()
	defer ks.c.s.calls.End()
	ws, zeros, more := ks.nextWaiters()
	if !more {
		return 0, false
	}
	if len(ws) == 0 && !zeros {
		return time.Second, true // all have left; each wakes this goroutine when it is out of the queue
	}
	return ks.serve(ws, zeros), true
}

// nextWaiters returns the next waiters for permits, and whether there are waiters for 0 permits; more is false if the
// queue is empty.
func (ks *keyState) nextWaiters() (ws []*waiter, zeros, more bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.queue.Empty() {
		ks.serving = false
		return nil, false, false
	}
	for w := range ks.queue.All(ks.c.limits().QueueOrder) {
		if w.Permits > 0 && !isClosed(w.Value.gone) {
			ws = append(ws, w)
		}
		if len(ws) == maxServed {
			break
		}
	}
	return ws, ks.queue.Zeros() > 0, true
}

// serve asks for the waiters ws in order and, if zeros is true, for the waiters for 0 permits. It returns how long to
// wait before the next round.
func (ks *keyState) serve(ws []*waiter, zeros bool) time.Duration {
	allowed := ks.allowedWaiters(ws)
	if !ks.c.leased && ks.c.o.Block <= 1 && !ks.away() {
		q, err := ks.askTogether(ws[:allowed], zeros)
		if err == nil {
			return ks.deliverTogether(q, ws, allowed, zeros)
		}
		allowed = len(ws) // the outage policy answers all
	}
	return ks.serveOneByOne(ws, allowed, zeros)
}

// allowedWaiters returns for how many of the waiters this instance asks now.
func (ks *keyState) allowedWaiters(ws []*waiter) int {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	now := time.Now()
	ks.c.anyKeyWaited.Store(now.UnixNano())
	if ks.c.leased || ks.away() {
		return len(ws) // they are asked for one by one, or the outage policy answers all
	}
	left := ks.fair().maxRequest(now)
	for i, w := range ws {
		if left -= int64(w.Permits); left < 0 && i > 0 {
			return i
		}
	}
	return len(ws)
}

func (ks *keyState) askTogether(ws []*waiter, zeros bool) (*calls.Call, error) {
	requests := make([]backend.Request, 0, len(ws)+1)
	if zeros {
		requests = append(requests, backend.Request{})
	}
	for i, w := range ws {
		requests = append(requests, backend.Request{Min: int64(w.Permits), Max: int64(w.Permits), IfPrevious: i > 0})
	}
	return ks.c.ask(ks.c.s.calls.Context(), ks.key, requests...)
}

// decisions returns how many of the requests the store has decided: those behind a rejected one with IfPrevious are
// rejected with it.
func decisions(q *calls.Call) (n int64) {
	for i, a := range q.Requests {
		if a.IfPrevious && q.Granted[i-1] == backend.Rejected {
			break
		}
		n++
	}
	return n
}

// deliverTogether delivers the answer to askTogether for the allowed first of ws, and returns the pause after it.
func (ks *keyState) deliverTogether(q *calls.Call, ws []*waiter, allowed int, zeros bool) time.Duration {
	ks.mu.Lock()
	ks.learn(q)
	ks.mu.Unlock()
	ks.c.s.count.decisions.Add(decisions(q))
	first, served := 0, false // first is the index of the request for ws[0]
	zerosRejected := false
	if zeros {
		first = 1
		zerosRejected = q.Granted[0] == backend.Rejected
		if served = !zerosRejected; served {
			ks.serveZeros(custom.Granted(0, nil))
		}
	}
	for i, w := range ws[:allowed] {
		switch {
		case q.Granted[first+i] == backend.Rejected && zerosRejected:
			return ks.pauseAfterRejection(0)
		case q.Granted[first+i] == backend.Rejected:
			return ks.pauseAfterRejection(w.Permits)
		}
		if !ks.deliver(w, ks.c.leaseFor(q, first+i)) {
			ks.c.undo(q, first+i)
		}
		served = true
	}
	if !served {
		return ks.pauseAfterRejection(0)
	}
	return ks.pauseAfterServing(allowed < len(ws))
}

// serveOneByOne is serve with one call for each waiter: for limiters that cannot ask for several in order, and by the
// outage policy.
func (ks *keyState) serveOneByOne(ws []*waiter, allowed int, zeros bool) (wait time.Duration) {
	wait = math.MaxInt64
	served := false
	if zeros {
		lease, err := ks.askFor(0)
		if err == nil && isFinal(lease) {
			ks.serveZeros(lease)
			served = true
		} else {
			wait = ks.pauseAfterLease(lease)
		}
	}
	for _, w := range ws[:allowed] {
		lease, err := ks.askFor(w.Permits)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = custom.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollInterval // closed; Close rejects all waiters
		case !isFinal(lease):
			return min(wait, ks.pauseAfterLease(lease))
		}
		if !ks.deliver(w, lease) {
			giveBackLease(lease)
		}
		if served = true; ks.leavesRest() {
			return 0
		}
	}
	if !served {
		return wait
	}
	return ks.pauseAfterServing(allowed < len(ws))
}

func (ks *keyState) askFor(n int) (limiter.Lease, error) {
	return ks.c.takeOrFallBack(ks.c.s.calls.Context(), ks.key, n, true)
}

// isFinal reports whether a waiting caller gets the lease. After a rejection without a reason, it waits on.
func isFinal(lease limiter.Lease) bool {
	return lease.Acquired() || lease.Reason() == limiter.ReasonUnavailable
}

// giveBackLease gives back a lease whose caller has left.
func giveBackLease(lease limiter.Lease) {
	if lease, ok := lease.Adjust(0); !ok {
		lease.Release()
	}
}

// deliver hands a lease to w or, if its caller has left, to another waiter for as many permits. It reports whether a
// waiter got the lease.
func (ks *keyState) deliver(w *waiter, lease limiter.Lease) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if w.Listed() && !isClosed(w.Value.gone) && ks.queue.answer(w, lease) {
		return true
	}
	if !lease.Acquired() {
		return ks.queue.answer(w, lease)
	}
	next := ks.queue.findWaiter(int64(w.Permits), ks.c.limits().QueueOrder)
	return next != nil && ks.queue.answer(next, lease)
}

// serveZeros hands the lease to all waiters for 0 permits.
func (ks *keyState) serveZeros(lease limiter.Lease) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for w := range ks.queue.All(limiter.OldestFirst) {
		if w.Permits == 0 {
			ks.queue.answer(w, lease)
		}
	}
}
