package store

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A call is the requests of one caller about one key of a bucket or window.
type call struct {
	pendingAnswer
	c          *core
	shard      *shard // the key's, when the call was made
	key        string
	requests   []backend.Request
	oneRequest [1]backend.Request // backs requests, which usually has one
	attempts   attempts
	direct     *directCall // not nil if the call does not use a batcher

	// The answer.

	def        *backend.Definition // set before the call if something is given back: what it was taken under
	granted    []int64
	oneGranted [1]int64
	receipts   []backend.Receipt // of each request
	oneReceipt [1]backend.Receipt
	state      backend.State // after all requests of the round trip
	now        int64         // the store's time
	sent       time.Time
}

func (q *call) priority() int { return 0 }

// A pendingAnswer is the part of a call or leaseCall that its caller waits for. The answer is valid once done is closed,
// if err is nil. What is granted to a caller that has left is given back.
type pendingAnswer struct {
	callerGone <-chan struct{} // closed when the caller's context ends; nil: it never does
	claimed    atomic.Bool     // by the goroutine that answers, or by the caller that leaves
	err        error
	done       chan struct{}
	onAnswer   func() // if not nil, called instead of closing done
}

// claim reports whether the caller still waits; then nothing else answers it.
func (p *pendingAnswer) claim() bool { return p.claimed.CompareAndSwap(false, true) }

func (p *pendingAnswer) notify() {
	if p.onAnswer != nil {
		p.onAnswer()
	} else {
		close(p.done)
	}
}

// failWith answers with an error.
func (p *pendingAnswer) failWith(err error) {
	if p.claim() {
		p.err = err
		p.notify()
	}
}

// abandoned reports whether the caller has left. If so, the call has been answered.
func (p *pendingAnswer) abandoned() bool {
	if p.claimed.Load() {
		return true
	}
	if !isClosed(p.callerGone) {
		return false
	}
	p.failWith(errCallerLeft)
	return true
}

// await waits for the answer. ctx is the caller's.
func (p *pendingAnswer) await(ctx context.Context, limit *time.Timer) error {
	if err := waitFor(p.callerGone, limit, p.done); err != nil {
		if p.claim() {
			p.err = err
		} else {
			<-p.done
		}
	}
	if p.err == errCallerLeft { //nolint:errorlint // it is never wrapped
		return undecided(ctx)
	}
	return p.err
}

// errCallerLeft means that the caller's context has ended. Only the caller's goroutine asks the context for its error.
// A context is the program's code: if it panicked on a goroutine of this package, or under a lock, what was granted
// would be lost.
var errCallerLeft = errors.New("the caller has left")

func isClosed(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}

// An undecidedError is the error of a call whose context has ended before the store answered. A caller whose context
// ends in the queue gets the context's error instead, because the store has answered that there are no permits.
type undecidedError struct{ err error }

func undecided(ctx context.Context) error {
	err := contextError(ctx)
	if err == nil { // a context of the program's whose Done is closed although its Err is nil
		err = errCallerLeft
	}
	return &undecidedError{err}
}

func (e *undecidedError) Error() string { return e.err.Error() }

func (e *undecidedError) Unwrap() error { return e.err }

// Undecided returns true: the limiter took no decision before the caller's context ended.
func (e *undecidedError) Undecided() bool { return true }

// ask sends requests and waits for the answer, CallTimeout at most. The error is an undecidedError or [ErrUnavailable].
func (c *core) ask(ctx context.Context, key string, requests ...backend.Request) (*call, error) {
	sh := c.s.shardOf(c.name, key)
	if err := sh.breaker.err(); err != nil {
		return nil, err
	}
	if c.o.NoCoalescing && c.s.interruptible && c.inForce.Load() != nil {
		if q, err := c.askDirectly(ctx, sh, key, requests); q != nil || err != nil {
			return q, err
		}
	}
	gone := ctx.Done()
	limit := time.NewTimer(c.s.o.CallTimeout)
	defer limit.Stop()
	if err := c.waitDefined(ctx, limit); err != nil {
		return nil, err
	}
	q := c.newCall(key, requests)
	q.callerGone, q.done = gone, make(chan struct{})
	c.s.send(q)
	return q, q.await(ctx, limit)
}

// wait returns nil when done is closed, or an error if ctx or the time ends first.
func wait(ctx context.Context, limit *time.Timer, done <-chan struct{}) error {
	err := waitFor(ctx.Done(), limit, done)
	if err == errCallerLeft { //nolint:errorlint // it is never wrapped
		return undecided(ctx)
	}
	return err
}

// waitFor is wait without a context: the error is errCallerLeft if gone is closed.
func waitFor(gone <-chan struct{}, limit *time.Timer, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-gone:
		return errCallerLeft
	case <-limit.C:
		return unavailable(errTimeout)
	}
}

func (c *core) newCall(key string, requests []backend.Request) *call {
	q := &call{c: c, shard: c.s.shardOf(c.name, key), key: key}
	q.requests = append(q.oneRequest[:0], requests...)
	return q
}

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
		runRoundTrip(s.o.CallTimeout, []*call{q}, s.sendDecisions, s.callsTimedOut)
	}()
}

// callsTimedOut answers the calls of a round trip that took too long.
func (s *Store) callsTimedOut(trip *roundTrip, calls []*call) {
	calls[0].shard.breaker.record(trip.started(), errTimeout)
	group(calls).fail(errTimeout)
}

// fail answers that the store could not be asked.
func (q *call) fail(err error) { q.failWith(unavailable(err)) }

// answer wakes the caller, or gives back what was granted if the caller has left.
func (q *call) answer() {
	if q.claim() {
		q.notify()
		return
	}
	for i, a := range q.requests {
		if a.Op == backend.OpTake && q.granted[i] > 0 && !q.passToWaiter(i) {
			q.undo(i)
		}
	}
}

// passToWaiter hands what was granted to a caller that has left to a waiter for as many permits. It returns false if
// there is none.
func (q *call) passToWaiter(i int) bool {
	if q.requests[i].Block {
		return false
	}
	ks := q.c.keys.lock(q.key, false)
	if ks == nil {
		return false
	}
	defer ks.mu.Unlock()
	w := ks.queue.waitsFor(q.granted[i], q.c.queueing.Load().order)
	return w != nil && ks.queue.answer(w, newGrant(q, i))
}

// undo gives back what a request was granted.
func (q *call) undo(i int) {
	op := backend.OpRefund
	if q.requests[i].Block {
		op = backend.OpReturnBlock
	}
	if n := q.granted[i]; n > 0 {
		q.c.giveBack(op, q.key, q.def, n, q.receipts[i])
	}
}

// giveBack gives permits back in the background by op, which is OpRefund or OpReturnBlock. A block that cannot be
// returned is ignored: time restores its permits.
func (c *core) giveBack(op backend.Op, key string, def *backend.Definition, n int64, receipt backend.Receipt) {
	q := c.newCall(key, []backend.Request{{Op: op, Max: n, Receipt: receipt}})
	q.def = def
	q.onAnswer = doNothing
	if op == backend.OpRefund {
		q.onAnswer = func() {
			if q.err == nil {
				c.wake(key)
				return
			}
			c.s.report(Event{Kind: EventRefundLost, Limiter: c.name, Key: key, Permits: n, Err: q.err})
		}
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
	lease := q.lease(0)
	q.recycle()
	return lease, nil
}

// lease returns the answer to a request.
func (q *call) lease(i int) limiter.Lease {
	n := q.requests[i].Min
	if q.granted[i] == backend.Rejected {
		q.c.remember(q, n)
		return limiter.RejectedKnowing(q.wait(n), "", q.def.Permits-q.state.Missing)
	}
	if n == 0 {
		return limiter.Granted(0, nil)
	}
	return newGrant(q, i)
}

// wait returns how long n permits take to come back after all requests of the round trip.
func (q *call) wait(n int64) time.Duration { return duration(q.def.Wait(q.state, q.now, n)) }

// duration converts µs, up to the longest Duration.
func duration(us int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(us, longest)) * time.Microsecond
}
