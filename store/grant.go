package store

import (
	"sync"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

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
