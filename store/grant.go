package store

import (
	"sync"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// A grant owns the lease of permits that were taken in the store, and has the receipts with which they are refunded.
type grant struct {
	c        *core
	key      string
	level    limiter.Level // right after the grant
	noRefund bool          // see LimiterOptions.CacheRejections

	mu      sync.Mutex
	parts   []grantPart  // the newest last
	onePart [1]grantPart // backs parts, which usually has one
}

// A grantPart is the permits of a grant that one request took.
type grantPart struct {
	def     *backend.Definition
	n       int64
	receipt rate.Receipt
}

func (c *core) newGrant(q *calls.Call, i int) limiter.Lease {
	g := &grant{
		c: c, key: q.Key, onePart: [1]grantPart{{q.Definition, q.Granted[i], q.After[i].Receipt}},
		level: levelAfter(q, i), noRefund: c.o.CacheRejections,
	}
	g.parts = g.onePart[:]
	return custom.GrantedBy(g, int(q.Granted[i]), 0)
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
	if g.noRefund {
		return
	}
	g.mu.Lock()
	parts := g.parts
	g.parts = nil
	g.mu.Unlock()
	for _, p := range parts {
		g.c.giveBack(backend.OpRefund, g.key, p.def, p.n, p.receipt)
	}
}

// Adjust charges or gives back, in the background, the difference to the real cost.
func (g *grant) Adjust(n int, tag int64, cost int) (int64, bool) {
	switch {
	case cost > n:
		g.charge(int64(cost - n))
		return tag, true
	case cost == n:
		return tag, true
	case g.noRefund:
		return tag, false
	}
	rest := int64(n - cost)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.parts) - 1; i >= 0 && rest > 0; i-- {
		p := &g.parts[i]
		n := min(rest, p.n)
		g.c.giveBack(backend.OpRefund, g.key, p.def, n, p.receipt)
		p.n -= n
		rest -= n
	}
	return tag, true
}

// charge takes more permits even if they are not available. While the store is away it does nothing, because grants of
// the outage policy are not counted in the store either.
func (g *grant) charge(more int64) {
	g.c.takeMore(g.key, more, func(q *calls.Call) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.parts = append(g.parts, grantPart{q.Definition, q.Granted[0], q.After[0].Receipt})
	})
}
