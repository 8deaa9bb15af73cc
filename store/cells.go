package store

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
)

// cells are those of one limiter. A limiter that is not partitioned has one.
type cells struct {
	c      *core
	single *cell
	once   sync.Once
	shards [16]shard
	number atomic.Int64 // in the shards
	tidied atomic.Bool  // a goroutine looks for cells that are not needed any more
}

type shard struct {
	mu sync.Mutex
	m  map[string]*cell
}

// mostCells bounds for how many keys a limiter remembers something. Keys beyond it are asked
// about in the store each time: their rejections are not remembered, nothing is borrowed for
// them, and there is no room in their queues.
const mostCells = 100_000

// lock returns the cell of a key, locked; nil if there is none and it is not to be made, or
// there are too many.
func (cs *cells) lock(key string, create bool) *cell {
	for {
		ce := cs.find(key, create)
		if ce == nil {
			return nil
		}
		ce.mu.Lock()
		if !ce.gone {
			return ce
		}
		ce.mu.Unlock()
	}
}

func (cs *cells) find(key string, create bool) *cell {
	if !cs.c.keyed {
		cs.once.Do(func() { cs.single = newCell(cs.c, key) })
		return cs.single
	}
	sh := &cs.shards[maphash.String(seed, key)%uint64(len(cs.shards))]
	sh.mu.Lock()
	ce := sh.m[key]
	made := ce == nil && create && cs.number.Load() < mostCells
	if made {
		if sh.m == nil {
			sh.m = map[string]*cell{}
		}
		ce = newCell(cs.c, key)
		sh.m[key] = ce
		cs.number.Add(1)
	}
	sh.mu.Unlock()
	if made && cs.tidied.CompareAndSwap(false, true) {
		cs.c.s.goes(cs.tidy)
	}
	return ce
}

func newCell(c *core, key string) *cell {
	return &cell{c: c, key: key, wakeup: make(chan struct{}, 1)}
}

const (
	// tidyEvery is how often cells are looked through that may not be needed any more.
	tidyEvery = 5 * time.Second
	// tidyAtOnce bounds for how many of them a shard is locked.
	tidyAtOnce = 256
)

// tidy forgets cells that know nothing any more, until there is none.
func (cs *cells) tidy() {
	for cs.c.s.sleeps(tidyEvery) {
		left := 0
		for i := range cs.shards {
			left += cs.shards[i].tidy(&cs.number)
		}
		if left > 0 {
			continue
		}
		cs.tidied.Store(false)
		if cs.empty() || !cs.tidied.CompareAndSwap(false, true) {
			return
		}
	}
}

// tidy returns how many cells are left.
func (sh *shard) tidy(number *atomic.Int64) int {
	for some := range slices.Chunk(sh.all(), tidyAtOnce) {
		number.Add(-sh.forgetIdle(some))
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.m) == 0 {
		sh.m = nil // it does not shrink by itself
	}
	return len(sh.m)
}

func (sh *shard) forgetIdle(some []*cell) (forgotten int64) {
	now := time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, ce := range some {
		if !ce.mu.TryLock() {
			continue // it is in use
		}
		if ce.idle(now) {
			ce.gone = true
			delete(sh.m, ce.key)
			forgotten++
		}
		ce.mu.Unlock()
	}
	return forgotten
}

func (sh *shard) all() []*cell {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return slices.Collect(maps.Values(sh.m))
}

func (cs *cells) empty() bool {
	for i := range cs.shards {
		if len(cs.shards[i].all()) > 0 {
			return false
		}
	}
	return true
}

// idle tells whether another cell in its place would answer the same.
func (ce *cell) idle(now time.Time) bool {
	return ce.queue.empty() && !ce.pumping && ce.held == 0 && !ce.rivals.attends(now) && !now.Before(ce.reject.until) && ce.loan.under == nil && ce.left(now) == 0
}

// each calls f for every cell, locked.
func (cs *cells) each(f func(*cell)) {
	locked := func(ce *cell) {
		ce.mu.Lock()
		defer ce.mu.Unlock()
		f(ce)
	}
	if !cs.c.keyed {
		locked(cs.find("", true))
		return
	}
	for i := range cs.shards {
		for _, ce := range cs.shards[i].all() {
			locked(ce)
		}
	}
}

// close sends everybody away who waits, and returns what was borrowed.
func (cs *cells) close() {
	cs.each(func(ce *cell) {
		for w := range ce.queue.all(limiter.OldestFirst) {
			ce.queue.answer(w, limiter.Rejected(0, limiter.ReasonClosed))
		}
		ce.returnBlocks()
		ce.wake()
	})
}

// reconfigured lets new limits take effect on those who wait, and on what is known. Blocks are
// returned: by the new limits they may be paid for earlier, or be too large.
func (cs *cells) reconfigured() {
	most := cs.c.limits().Permits
	cs.each(func(ce *cell) {
		ce.reject, ce.rivals.back, ce.rivals.rest = rejection{}, time.Time{}, time.Time{}
		ce.returnBlocks()
		for w := range ce.queue.all(limiter.OldestFirst) {
			if int64(w.n) > most {
				ce.queue.answer(w, limiter.Rejected(0, limiter.ReasonLimitLowered))
			}
		}
		ce.wake()
	})
}
