package store

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// ErrUnavailable means that the store could not be asked. It is the value of [OutageKey] and the error of Reconfigure,
// wrapped with the reason.
var ErrUnavailable = calls.ErrUnavailable

// A remote is the side of a limiter that is in the store: it makes the calls about its keys, and leases of what the store grants.
type remote struct{ c *core }

// Name implements [calls.Limiter], as the methods below do.
func (r *remote) Name() string { return r.c.name }

func (r *remote) Definition() *backend.Definition { return r.c.keeper.InForce().Definition }

func (r *remote) AwaitDefinition(version int64) error { return r.c.keeper.Await(version) }

// Unclaimed gives back what was granted to a caller that has left or, of a lease without a reply, may have been. Waiting callers ask
// for it then.
func (r *remote) Unclaimed(q *calls.Call, reply *backend.LeaseRequest) {
	if q.Op != calls.Decide {
		fence := int64(0)
		if reply != nil {
			fence = reply.Fence
		}
		r.newHeldLease(q, fence, time.Now()).Release(0, 0)
		return
	}
	for i, request := range q.Requests {
		if request.Op == backend.OpTake {
			r.undo(q, i)
		}
	}
}

// ask sends requests and waits for the answer. The error is that of [calls.Client.Ask].
func (r *remote) ask(ctx context.Context, key string, requests ...backend.Request) (*calls.Call, error) {
	r.c.keeper.RefreshIfDue(time.Now())
	return r.c.s.calls.Ask(ctx, func() *calls.Call {
		q := calls.NewDecide(r, key, requests...)
		last := requests[len(requests)-1] // the first may only read the state
		q.CountLate = r.c.o.Outage == FailOpen && last.Op == backend.OpTake && last.Max > 0 && !requests[0].Block
		return q
	})
}

// undo gives back what a request was granted.
func (r *remote) undo(q *calls.Call, i int) {
	op := backend.OpRefund
	if q.Requests[i].Block {
		op = backend.OpReturnBlock
	}
	if n := q.Granted[i]; n > 0 {
		r.giveBack(op, q.Key, q.Definition, n, q.After[i].Receipt)
	}
}

// giveBack gives permits back in the background by op, which is OpRefund or OpReturnBlock. A block that cannot be
// returned is ignored: time restores its permits.
func (r *remote) giveBack(op backend.Op, key string, def *backend.Definition, n int64, receipt rate.Receipt) {
	q := calls.NewDecide(r, key, backend.Request{Op: op, Max: n, Receipt: receipt})
	q.Definition = def
	q.OnAnswer = func() {
		switch {
		case op != backend.OpRefund:
		case q.Err == nil:
			r.c.keys.learnCharge(q, q.Granted[0] > 0)
		default:
			r.c.s.report(Event{Kind: EventRefundLost, Limiter: r.c.name, Key: key, Permits: n, Err: q.Err})
		}
	}
	r.c.s.calls.Send(q)
}

// takeMore charges permits in the background. While the store is away it does nothing, because grants of the outage policy are not
// counted in the store either.
func (r *remote) takeMore(key string, n int64, onAnswer func(q *calls.Call)) {
	q := calls.NewDecide(r, key, backend.Request{Op: backend.OpCharge, Max: n})
	q.OnAnswer = func() {
		if q.Err == nil {
			r.c.keys.learn(q)
		}
		onAnswer(q)
	}
	r.c.s.calls.Send(q)
}

// take asks the store for n permits, which it gets if as many as are queued are left for the queue.
func (r *remote) take(ctx context.Context, key string, n int, queued int64) (limiter.Lease, error) {
	requests := []backend.Request{{Min: int64(n) + queued}, {Min: int64(n), Max: int64(n), IfPrevious: true}} // the first takes none
	if queued == 0 {
		requests = []backend.Request{{Min: int64(n), Max: int64(n)}}
	}
	q, err := r.ask(ctx, key, requests...)
	if err != nil {
		return limiter.Lease{}, err
	}
	r.c.s.count.decisions.Add(1)
	rejected := q.Granted[0] == backend.Rejected
	if rejected || r.c.o.Block > 1 { // every answer tells blocks what time it is in the store
		r.c.keys.learn(q)
	}
	if rejected {
		return r.leaseFor(q, 0), nil
	}
	return r.leaseFor(q, len(requests)-1), nil
}

// leaseFor returns the answer to a request.
func (r *remote) leaseFor(q *calls.Call, i int) limiter.Lease {
	n := q.Requests[i].Min
	switch {
	case q.Granted[i] == backend.Rejected:
		return custom.RejectedKnowing(q.Wait(n), "", q.Definition.Free(&q.State))
	case n == 0:
		return custom.Granted(0, nil)
	}
	return r.newGrant(q, i)
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

func (r *remote) newGrant(q *calls.Call, i int) limiter.Lease {
	n := q.Granted[i]
	g := &grant{
		c: r.c, key: q.Key, level: levelAfter(q, i), cost: n, onePart: [1]grantPart{{q.Definition, n, q.After[i].Receipt}},
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

// Correct tells the key's queue, if it has one, that what a waiter of the tenant was served has cost that many permits more.
func (g *grant) Correct(t limiter.Tenant, more int64) {
	if ks := g.c.keys.lock(g.key, false); ks != nil {
		defer ks.mu.Unlock()
		ks.correct(t, more)
	}
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
			g.c.remote.giveBack(backend.OpRefund, g.key, p.def, back, p.receipt)
		}
		more += back
		if p.n -= back; p.n > 0 {
			break
		}
	}
	g.charging = g.charging || more > 0
	g.mu.Unlock()
	if more > 0 {
		g.c.remote.takeMore(g.key, more, func(q *calls.Call) { g.charged(q, more) })
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

// askFree asks the store how many permits are available, and also returns the call.
func (r *remote) askFree(ctx context.Context, key string) (int64, *calls.Call, error) {
	if r.c.leased {
		q, err := r.askForLease(ctx, key, 0, false)
		if err != nil {
			return 0, nil, err
		}
		return q.Reply.Definition.Permits - q.Reply.InUse, q, nil
	}
	q, err := r.ask(ctx, key, backend.Request{})
	if err != nil {
		return 0, nil, err
	}
	return q.Definition.Free(&q.State), q, nil
}

// charge charges n permits in the store.
func (r *remote) charge(ctx context.Context, key string, n int64) (limiter.Level, error) {
	ask := backend.Request{} // asks whether any permit is available, and takes none
	switch {
	case n > 0:
		ask = backend.Request{Op: backend.OpCharge, Max: n}
	case n < 0:
		n = max(n, -math.MaxInt64)
		ask = backend.Request{Op: backend.OpGiveBack, Max: -n}
	}
	q, err := r.ask(ctx, key, ask)
	if err != nil {
		return limiter.Level{}, err
	}
	if n != 0 {
		r.c.s.count.decisions.Add(1)
	}
	return r.c.keys.learnCharge(q, n < 0 && q.Granted[0] > 0), nil
}
