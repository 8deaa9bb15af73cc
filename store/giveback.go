package store

import (
	"sync"
	"sync/atomic"
	"time"
)

// giveBacks are what a limiter is giving back to the store: refunds, blocks and releases of leases. Nothing waits for
// them, and round trips can overtake each other. The rule: a call that has taken nothing, because it was rejected or only
// reads, is sent again when everything is answered that was given back for its key before it. So a caller finds what it has
// given back, and no other call waits.
type giveBacks struct {
	count atomic.Int64 // of all keys
	mu    sync.Mutex
	byKey map[string][]*giveBack // the oldest first
}

type giveBack struct {
	answered bool
	done     chan struct{} // closed when it and all before it are answered
}

// begin is called before permits of a key are given back, and end when the store has answered.
func (g *giveBacks) begin(key string) (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey == nil {
		g.byKey = map[string][]*giveBack{}
	}
	b := &giveBack{done: make(chan struct{})}
	g.byKey[key] = append(g.byKey[key], b)
	g.count.Add(1)
	return func() { g.end(key, b) }
}

func (g *giveBacks) end(key string, b *giveBack) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b.answered = true
	all := g.byKey[key]
	for len(all) > 0 && all[0].answered {
		close(all[0].done)
		all = all[1:]
		g.count.Add(-1)
	}
	if g.byKey[key] = all; len(all) == 0 {
		delete(g.byKey, key)
	}
}

// underWay returns a channel that is closed when all that is being given back for the key is answered, or nil if nothing is.
func (g *giveBacks) underWay(key string) <-chan struct{} {
	if g.count.Load() == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.byKey[key]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1].done
}

// askInOrder calls ask, and again after givenBack, which is not nil, if the first call has taken nothing. If the second
// answer does not come in time, the first one holds.
func askInOrder[T interface{ tookNothing() bool }](givenBack, gone <-chan struct{}, limit *time.Timer, ask func() (T, error)) (T, error) {
	first, err := ask()
	if err != nil || !first.tookNothing() {
		return first, err
	}
	if waitUntilDoneOrGone(gone, limit, givenBack) == nil {
		if second, err := ask(); err == nil {
			return second, nil
		}
	}
	return first, nil
}
