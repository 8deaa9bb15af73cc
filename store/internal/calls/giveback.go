package calls

import (
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/store/backend"
)

// giveBacks are what limiters are giving back to the store: refunds, blocks and releases of leases. No caller waits for
// them, and round trips can overtake each other. The rule: a call that has taken nothing, because it was rejected or only
// reads, is sent again when everything is answered that was given back for its key before it. So a caller finds what it has
// given back, and no other call waits.
type giveBacks struct {
	count atomic.Int64 // of all keys
	mu    sync.Mutex
	byKey map[limiterKey][]*giveBack // the oldest first
}

type limiterKey struct{ name, key string }

type giveBack struct {
	all      *giveBacks
	of       limiterKey
	answered bool
	done     chan struct{} // closed when it and all before it are answered
}

// begin is called before q is sent. It returns nil if q gives nothing back.
func (g *giveBacks) begin(q *Call) *giveBack {
	if q.Op != Release && (q.Op != Decide || q.Requests[0].Op != backend.OpRefund && q.Requests[0].Op != backend.OpReturnBlock) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey == nil {
		g.byKey = map[limiterKey][]*giveBack{}
	}
	b := &giveBack{all: g, of: limiterKey{q.Limiter.Name(), q.Key}, done: make(chan struct{})}
	g.byKey[b.of] = append(g.byKey[b.of], b)
	g.count.Add(1)
	return b
}

func (b *giveBack) end() {
	if b == nil {
		return
	}
	g := b.all
	g.mu.Lock()
	defer g.mu.Unlock()
	b.answered = true
	rest := g.byKey[b.of]
	for len(rest) > 0 && rest[0].answered {
		close(rest[0].done)
		rest = rest[1:]
		g.count.Add(-1)
	}
	if g.byKey[b.of] = rest; len(rest) == 0 {
		delete(g.byKey, b.of)
	}
}

// before returns a channel that is closed when all is answered that is being given back for the key of q, or nil if q need not
// be sent again after it. A caller that waits for a lease need not ask again: the release wakes it.
func (g *giveBacks) before(q *Call) <-chan struct{} {
	if g.count.Load() == 0 || q.Lease != nil && q.Lease.Waiting {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.byKey[limiterKey{q.Limiter.Name(), q.Key}]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1].done
}
