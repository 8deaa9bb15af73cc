package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A call is the requests of one caller about one key of a bucket or window.
type call struct {
	pendingAnswer
	c          *core
	shard      *shard // the key's shard when the call was made
	key        string
	requests   []backend.Request
	oneRequest [1]backend.Request // backs requests, which usually has one
	attempts   attempts
	direct     *directCall // not nil if the call does not use a batcher
	countUntil time.Time   // not zero with FailOpen: see admitted

	// The answer.

	def        *backend.Definition // before the answer: nil, or the definition under which the permits to give back were granted
	granted    []int64
	oneGranted [1]int64
	after      []afterRequest
	oneAfter   [1]afterRequest
	state      rate.State // after all requests of the round trip
	now        int64      // the store's time
	sent       time.Time
}

// An afterRequest is what is known right after a request.
type afterRequest struct {
	receipt rate.Receipt // of what the request has taken
	missing int64
}

func (q *call) order() string { return fmt.Sprintf("%q %q %v", q.c.name, q.key, q.requests) }

// ask sends requests and waits for the answer, as long as waitLimit says, in the order of [giveBacks]. The error is an
// undecidedError or [ErrUnavailable].
func (c *core) ask(ctx context.Context, key string, requests ...backend.Request) (*call, error) {
	sh := c.s.shardOf(c.name, key)
	if err := sh.breaker.err(); err != nil {
		return nil, err
	}
	givenBack := c.giveBacks.underWay(key)
	if c.o.NoCoalescing && c.s.interruptible && givenBack == nil && c.keeper.InForce().Definition != nil && !isHasty(ctx) {
		if q, err := c.askDirectly(ctx, sh, key, requests); q != nil || err != nil {
			return q, err
		}
	}
	gone := ctx.Done()
	limit := c.s.waitLimit(ctx)
	defer limit.Stop()
	var countUntil time.Time
	if c.o.Outage == FailOpen {
		countUntil = time.Now().Add(c.s.o.CallTimeout)
	}
	if givenBack == nil {
		return c.askWithin(ctx, gone, limit, countUntil, key, requests)
	}
	return askInOrder(givenBack, gone, limit, func() (*call, error) {
		q, err := c.askWithin(ctx, gone, limit, countUntil, key, requests)
		countUntil = time.Time{} // if the second answer is late, the caller is rejected by the first one
		return q, err
	})
}

// askWithin makes one call for ask.
func (c *core) askWithin(ctx context.Context, gone <-chan struct{}, limit *time.Timer, countUntil time.Time, key string, requests []backend.Request) (*call, error) {
	q := c.newCall(key, requests)
	q.callerGone, q.done, q.countUntil = gone, make(chan struct{}), countUntil
	c.sendDefined(q)
	return q, q.await(ctx, limit)
}

// tookNothing reports whether the answer has changed nothing in the store.
func (q *call) tookNothing() bool { return slices.Max(q.granted) <= 0 }

func (c *core) newCall(key string, requests []backend.Request) *call {
	q := &call{c: c, shard: c.s.shardOf(c.name, key), key: key}
	q.requests = append(q.oneRequest[:0], requests...)
	return q
}

// background reports whether no caller waits for the answer. Such a call gives permits back or charges them: the caller
// that was granted the permits has left, so they would be lost.
func (q *call) background() bool { return q.done == nil }

// send sends a call through its batcher or, with NoCoalescing, in a round trip of its own.
func (s *Store) send(q *call) {
	if !q.c.o.NoCoalescing {
		q.shard.calls[batcherOf(q.c, q.key)].add(q)
		return
	}
	s.inFlight.Add(1)
	go func() {
		defer s.finishInFlight()
		if q.abandoned() {
			return
		}
		trip, calls := &roundTrip{}, []*call{q}
		trip.watch = time.AfterFunc(s.o.CallTimeout, func() {
			if trip.abandon() {
				s.callsTimedOut(trip, calls)
			}
		})
		runRoundTrip(trip, calls, s.sendDecisions, s.callsTimedOut)
	}()
}

// callsTimedOut answers the calls of a round trip that took too long.
func (s *Store) callsTimedOut(trip *roundTrip, calls []*call) {
	calls[0].shard.breaker.record(trip.epoch(), errTimeout)
	group(calls).fail(errTimeout)
}

// fail answers that the store could not be asked.
func (q *call) fail(err error) { q.failWith(unavailable(err)) }

// admitted reports whether [FailOpen] has admitted the caller, because the answer is late. The request still counts: what
// it is granted stays taken, and it is sent if that is within CallTimeout. If a store takes fewer requests than come, the
// rest is admitted without being counted, because it would pile up here. A charge is not sent later: its caller was told
// that it failed.
func (q *call) admitted() bool {
	last := q.requests[len(q.requests)-1] // the first may only read the state
	takes := last.Op == backend.OpTake && last.Max > 0 && !q.requests[0].Block
	return takes && !q.countUntil.IsZero() && q.claimed.Load() && !q.undecided.Load()
}

func (q *call) abandoned() bool {
	return q.pendingAnswer.abandoned() && !(q.admitted() && time.Now().Before(q.countUntil))
}

// answer wakes the caller, or gives back what was granted if the caller has left.
func (q *call) answer() {
	switch {
	case q.claim():
		q.notify()
		return
	case q.admitted():
		return
	}
	for i, a := range q.requests {
		if a.Op == backend.OpTake && q.granted[i] > 0 && !q.passToWaiter(i) {
			q.undo(i)
		}
	}
}

// passToWaiter is for a caller that has left: what it was granted goes to a waiter for as many permits. passToWaiter
// reports whether there was such a waiter.
func (q *call) passToWaiter(i int) bool {
	if q.requests[i].Block {
		return false
	}
	ks := q.c.keys.lock(q.key, false)
	if ks == nil {
		return false
	}
	defer ks.mu.Unlock()
	w := ks.queue.findWaiter(q.granted[i], q.c.limits().QueueOrder)
	if w == nil || !ks.queue.answer(w, newGrant(q, i)) {
		return false
	}
	q.c.s.count.decisions.Add(1)
	return true
}

// undo gives back what a request was granted.
func (q *call) undo(i int) {
	op := backend.OpRefund
	if q.requests[i].Block {
		op = backend.OpReturnBlock
	}
	if n := q.granted[i]; n > 0 {
		q.c.giveBack(op, q.key, q.def, n, q.after[i].receipt)
	}
}

// giveBack gives permits back in the background by op, which is OpRefund or OpReturnBlock. A block that cannot be
// returned is ignored: time restores its permits.
func (c *core) giveBack(op backend.Op, key string, def *backend.Definition, n int64, receipt rate.Receipt) {
	q := c.newCall(key, []backend.Request{{Op: op, Max: n, Receipt: receipt}})
	q.def = def
	end := c.giveBacks.begin(key)
	q.onAnswer = func() {
		switch {
		case op != backend.OpRefund:
		case q.err == nil:
			c.learnLevel(q, q.granted[0] > 0)
		default:
			c.s.report(Event{Kind: EventRefundLost, Limiter: c.name, Key: key, Permits: n, Err: q.err})
		}
		end()
	}
	c.sendBackground(q)
}

// sendBackground sends a call that no caller waits for, unless the store is known to be away.
func (c *core) sendBackground(q *call) {
	if err := c.s.checkShard(q.shard); err != nil {
		q.fail(err)
		return
	}
	c.s.send(q)
}

// takeFromStore asks the store for n permits.
func (c *core) takeFromStore(ctx context.Context, key string, n int) (limiter.Lease, error) {
	q, err := c.ask(ctx, key, backend.Request{Min: int64(n), Max: int64(n)})
	if err != nil {
		return limiter.Lease{}, err
	}
	c.s.count.decisions.Add(1)
	lease := q.lease(0)
	q.recycle()
	return lease, nil
}

// lease returns the answer to a request.
func (q *call) lease(i int) limiter.Lease {
	n := q.requests[i].Min
	if q.granted[i] == backend.Rejected {
		q.c.remember(q, n)
		return custom.RejectedKnowing(q.untilAvailable(n), "", q.def.Free(&q.state))
	}
	if n == 0 {
		return custom.Granted(0, nil)
	}
	return newGrant(q, i)
}

// untilAvailable returns how long it takes until n permits are available, after all requests of the round trip.
func (q *call) untilAvailable(n int64) time.Duration { return duration(q.def.Wait(&q.state, q.now, n)) }

// duration converts µs, up to the longest Duration.
func duration(us int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(us, longest)) * time.Microsecond
}
