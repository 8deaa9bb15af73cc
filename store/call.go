package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// ErrUnavailable means that the store could not be asked. It is the value of [OutageKey] and the error of Reconfigure,
// wrapped with the reason.
var ErrUnavailable = calls.ErrUnavailable

// Name implements [calls.Limiter], as the methods below do.
func (c *core) Name() string { return c.name }

func (c *core) Definition() *backend.Definition { return c.keeper.InForce().Definition }

func (c *core) AwaitDefinition(version int64) error { return c.keeper.Await(version) }

// Unclaimed gives back what was granted to a caller that has left or, of a lease without a reply, may have been. Waiting callers ask
// for it then.
func (c *core) Unclaimed(q *calls.Call, reply *backend.LeaseRequest) {
	if q.Op != calls.Decide {
		fence := int64(0)
		if reply != nil {
			fence = reply.Fence
		}
		c.newHeldLease(q, fence, time.Now()).Release(0, 0)
		return
	}
	for i, r := range q.Requests {
		if r.Op == backend.OpTake {
			c.undo(q, i)
		}
	}
}

// ask sends requests and waits for the answer. The error is that of [calls.Client.Ask].
func (c *core) ask(ctx context.Context, key string, requests ...backend.Request) (*calls.Call, error) {
	c.keeper.RefreshIfDue(time.Now())
	return c.s.calls.Ask(ctx, func() *calls.Call {
		q := calls.NewDecide(c, key, requests...)
		last := requests[len(requests)-1] // the first may only read the state
		q.CountLate = c.o.Outage == FailOpen && last.Op == backend.OpTake && last.Max > 0 && !requests[0].Block
		return q
	})
}

// undo gives back what a request was granted.
func (c *core) undo(q *calls.Call, i int) {
	op := backend.OpRefund
	if q.Requests[i].Block {
		op = backend.OpReturnBlock
	}
	if n := q.Granted[i]; n > 0 {
		c.giveBack(op, q.Key, q.Definition, n, q.After[i].Receipt)
	}
}

// giveBack gives permits back in the background by op, which is OpRefund or OpReturnBlock. A block that cannot be
// returned is ignored: time restores its permits.
func (c *core) giveBack(op backend.Op, key string, def *backend.Definition, n int64, receipt rate.Receipt) {
	q := calls.NewDecide(c, key, backend.Request{Op: op, Max: n, Receipt: receipt})
	q.Definition = def
	q.OnAnswer = func() {
		switch {
		case op != backend.OpRefund:
		case q.Err == nil:
			c.learnLevel(q, q.Granted[0] > 0)
		default:
			c.s.report(Event{Kind: EventRefundLost, Limiter: c.name, Key: key, Permits: n, Err: q.Err})
		}
	}
	c.s.calls.Send(q)
}

// takeMore charges permits in the background. While the store is away it does nothing, because grants of the outage policy are not
// counted in the store either.
func (c *core) takeMore(key string, n int64, onAnswer func(q *calls.Call)) {
	q := calls.NewDecide(c, key, backend.Request{Op: backend.OpCharge, Max: n})
	q.OnAnswer = func() {
		if q.Err == nil {
			c.learn(q)
		}
		onAnswer(q)
	}
	c.s.calls.Send(q)
}

// takeFromStore asks the store for n permits.
func (c *core) takeFromStore(ctx context.Context, key string, n int) (limiter.Lease, error) {
	q, err := c.ask(ctx, key, backend.Request{Min: int64(n), Max: int64(n)})
	if err != nil {
		return limiter.Lease{}, err
	}
	c.s.count.decisions.Add(1)
	if q.Granted[0] == backend.Rejected || c.o.Block > 1 { // every answer tells blocks what time it is in the store
		c.learn(q)
	}
	return c.leaseFor(q, 0), nil
}

// leaseFor returns the answer to a request.
func (c *core) leaseFor(q *calls.Call, i int) limiter.Lease {
	n := q.Requests[i].Min
	switch {
	case q.Granted[i] == backend.Rejected:
		return custom.RejectedKnowing(q.Wait(n), "", q.Definition.Free(&q.State))
	case n == 0:
		return custom.Granted(0, nil)
	}
	return c.newGrant(q, i)
}

// A grant owns the lease of permits that were taken in the store. It has a cost, which Adjust and Refund set, and parts, which the
// store has taken for it. The parts follow the cost. One charge at a time is under way: only its answer has the receipt with
// which it can be given back, so what the cost is meanwhile counts when it is answered.
type grant struct {
	c     *core
	key   string
	level limiter.Level // right after the grant

	mu       sync.Mutex
	cost     int64
	charging bool         // a charge is under way
	parts    []grantPart  // the newest last
	onePart  [1]grantPart // backs parts, which usually has one
}

// A grantPart is the permits of a grant that one request took. Those of a charge without an answer have no definition. They are not
// charged again, because the store may have taken them, and not given back, because it may not.
type grantPart struct {
	def     *backend.Definition
	n       int64
	receipt rate.Receipt
}

func (c *core) newGrant(q *calls.Call, i int) limiter.Lease {
	n := q.Granted[i]
	g := &grant{
		c: c, key: q.Key, level: levelAfter(q, i), cost: n, onePart: [1]grantPart{{q.Definition, n, q.After[i].Receipt}},
	}
	g.parts = g.onePart[:]
	return custom.GrantedBy(g, int(n), 0)
}

// Release does nothing: the permits are spent.
func (g *grant) Release(int, int64) {}

// Remaining returns what was left when the store decided.
func (g *grant) Remaining(int, int64) (int64, bool) { return max(g.level.Remaining, 0), true }

// Level returns the level right after the grant.
func (g *grant) Level(int, int64) (limiter.Level, bool) { return g.level, true }

// Refund gives back, in the background, what time has not restored.
func (g *grant) Refund(int, int64) {
	g.c.count.granted.Add(-1)
	g.setCost(0)
}

// Adjust charges or gives back, in the background, the difference to the real cost.
func (g *grant) Adjust(_ int, tag int64, cost int) (int64, bool) {
	g.setCost(int64(cost))
	return tag, true
}

func (g *grant) setCost(cost int64) {
	g.mu.Lock()
	g.cost = cost
	g.mu.Unlock()
	g.settle()
}

// settle makes the parts follow the cost. What is charged is taken even if it is not available.
func (g *grant) settle() {
	g.mu.Lock()
	more := g.cost
	for _, p := range g.parts {
		more -= p.n
	}
	if g.charging {
		more = 0
	}
	for ; more < 0; g.parts = g.parts[:len(g.parts)-1] {
		p := &g.parts[len(g.parts)-1]
		back := min(-more, p.n)
		if p.def != nil {
			g.c.giveBack(backend.OpRefund, g.key, p.def, back, p.receipt)
		}
		more += back
		if p.n -= back; p.n > 0 {
			break
		}
	}
	g.charging = g.charging || more > 0
	g.mu.Unlock()
	if more > 0 {
		g.c.takeMore(g.key, more, func(q *calls.Call) { g.charged(q, more) })
	}
}

// charged notes the answer to a charge.
func (g *grant) charged(q *calls.Call, n int64) {
	var p grantPart
	if q.Err == nil {
		p = grantPart{q.Definition, q.Granted[0], q.After[0].Receipt}
	}
	g.mu.Lock()
	g.charging = false
	g.parts = append(g.parts, p, grantPart{n: n - p.n})
	g.mu.Unlock()
	g.settle()
}

// Charge takes n permits that the work has already used, even if fewer are available; see [limiter.Charger]. If n is
// negative, it gives back -n permits, and if n is 0, it returns the level and takes nothing. A concurrency limiter returns
// [errors.ErrUnsupported]. A limiter owes 2⁵¹ permits at most; what is above that is not taken.
//
// Charge makes one call to the store, and shares the round trip with other calls as TryAcquire does. Of a bucket with
// LimiterOptions.Block, only what was taken since an instance last borrowed a block can be given back. Other instances that
// remember rejections (CacheRejections, Block) learn of permits that were given back only when these rejections end. Give
// back only what was charged: if permits of a lease come back by Charge, and are taken again, the lease can still give them
// back a second time.
//
// The level is that right after the charge, by the store. With Block, what this instance has borrowed counts as remaining,
// as it does in Lease.Remaining and Statistics, but as taken in Full. The charge is taken from the store, so what was
// borrowed is granted even if the limiter owes permits.
//
// A charge that cannot be sent is lost; it is not sent later. With [FailClosed] and with [FailOpen], the error wraps
// [ErrUnavailable]; if the store has not answered in time, it can have counted the charge nevertheless. With
// [FallBackLocally], the limiter in the process is charged instead, and the level is its level. If ctx ends first, the error
// is that of [Limiter.TryAcquire], but a charge that was already sent counts. A program that reports usage at the end of a
// request should pass a context that does not end with the request; see [context.WithoutCancel].
func (l *Limiter) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return l.c.charge(ctx, "", n)
}

// Charge is [Limiter.Charge] for a key.
func (p *Partitioned) Charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	return p.c.charge(ctx, key, n)
}

// charge is Charge for a key.
func (c *core) charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	switch {
	case ctx.Err() != nil:
		return limiter.Level{}, ctxerr.Of(ctx)
	case c.leased:
		return limiter.Level{}, fmt.Errorf("store: limiter %q lends its permits and cannot be charged: %w", c.name, errors.ErrUnsupported)
	case c.closed.Load():
		return limiter.Level{}, limiter.ErrClosed
	}
	key = storedKey(key)
	level, err := c.chargeInStore(ctx, key, int64(n))
	switch {
	case err == nil:
		return level, nil
	case !errors.Is(err, ErrUnavailable):
		return limiter.Level{}, err
	case c.closed.Load():
		return limiter.Level{}, limiter.ErrClosed
	case c.o.Outage == FallBackLocally:
		level, failed := c.fallback.limiterOf(c).Charge(context.Background(), key, n)
		if failed != nil { // the limiter was closed just now
			return limiter.Level{}, err
		}
		if n != 0 {
			c.s.count.outages.Add(1)
		}
		return level, nil
	}
	return limiter.Level{}, err
}

// chargeInStore charges n permits in the store.
func (c *core) chargeInStore(ctx context.Context, key string, n int64) (limiter.Level, error) {
	ask := backend.Request{} // asks whether any permit is available, and takes none
	switch {
	case n > 0:
		ask = backend.Request{Op: backend.OpCharge, Max: n}
	case n < 0:
		n = max(n, -math.MaxInt64)
		ask = backend.Request{Op: backend.OpGiveBack, Max: -n}
	}
	q, err := c.ask(ctx, key, ask)
	if err != nil {
		return limiter.Level{}, err
	}
	if n != 0 {
		c.s.count.decisions.Add(1)
	}
	return c.learnLevel(q, n < 0 && q.Granted[0] > 0), nil
}

// levelAfter returns the level right after a request. The state is that after all requests of the round trip.
func levelAfter(q *calls.Call, i int) limiter.Level {
	missing := q.After[i].Missing
	return limiter.Level{Remaining: q.Definition.Permits - missing, Full: untilBack(q.Definition, &q.State, missing, q.Now)}
}

// learnLevel keeps the answer to a charge, so that neither a remembered rejection nor a waiting caller waits for permits
// that are there. It returns the level after the last request.
func (c *core) learnLevel(q *calls.Call, gaveBack bool) limiter.Level {
	level := levelAfter(q, len(q.Requests)-1)
	// An answer from before the permits were given back may be remembered only later; see learn.
	ks := c.keys.lock(q.Key, gaveBack && c.remembersRejections())
	if ks == nil {
		return level
	}
	defer ks.mu.Unlock()
	borrowed := ks.borrowed(time.Now())
	switch {
	case ks.learn(q):
		if end := q.Sent.Add(q.Wait(ks.rejection.least - borrowed)); end.Before(ks.rejection.until) {
			ks.rejection.until = end
		}
	case gaveBack:
		ks.rejection = rememberedRejection{}
	}
	if gaveBack {
		ks.queue.wake()
	}
	level.Remaining = min(level.Remaining+borrowed, q.Definition.Permits)
	return level
}
