package store

import (
	"sync"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A grant owns the lease of permits that were taken in the store, and has the receipts with which they are refunded.
type grant struct {
	c     *core
	key   string
	by    limiter.Granter
	left  int64 // right after the grant
	final bool  // nothing is refunded: see LimiterOptions.CacheRejections

	mu    sync.Mutex
	parts []portion  // the newest last
	few   [1]portion // backs parts, which usually has one
}

// A portion of a grant was taken by one request.
type portion struct {
	def  *backend.Definition
	n    int64
	mark backend.Receipt
}

func newGrant(q *call, i int) limiter.Lease {
	g := &grant{
		c: q.c, key: q.key, few: [1]portion{{q.def, q.granted[i], q.receipts[i]}},
		left: max(q.def.Permits-q.receipts[i].Missing, 0), final: q.c.o.CacheRejections,
	}
	g.parts, g.by = g.few[:], *limiter.NewGranter(g) // one allocation, because every grant makes one
	return g.by.Grant(int(q.granted[i]), 0)
}

// Release does nothing: the permits are spent.
func (g *grant) Release(int, int64) {}

// Remaining returns what was left when the store decided.
func (g *grant) Remaining(int, int64) (int64, bool) { return g.left, true }

// Refund gives back, in the background, what time has not restored.
func (g *grant) Refund(int, int64) {
	g.c.granted.Add(-1)
	if g.final {
		return
	}
	g.mu.Lock()
	parts := g.parts
	g.parts = nil
	g.mu.Unlock()
	for _, p := range parts {
		g.c.refund(g.key, p.def, p.n, p.mark)
	}
}

// Adjust charges the real cost in the background.
func (g *grant) Adjust(n int, tag int64, cost int) (int64, bool) {
	if cost >= n {
		g.charge(int64(cost - n))
		return tag, true
	}
	if g.final {
		return tag, false
	}
	back := int64(n - cost)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.parts) - 1; i >= 0 && back > 0; i-- {
		p := &g.parts[i]
		some := min(back, p.n)
		g.c.refund(g.key, p.def, some, p.mark)
		p.n -= some
		p.mark.Missing -= some
		back -= some
	}
	return tag, true
}

// charge takes more permits even if they are not available. While the store is away it does nothing: the outage policy
// keeps its own accounts.
func (g *grant) charge(more int64) {
	if more == 0 {
		return
	}
	q := g.c.newCall(g.key, []backend.Request{{Op: backend.OpCharge, Max: more}})
	q.onAnswer = func() {
		if q.err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.parts = append(g.parts, portion{q.def, q.granted[0], q.receipts[0]})
		}
	}
	g.c.sendBackground(q)
}
