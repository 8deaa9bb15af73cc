package store

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// A keyTable has the keyStates of one limiter.
type keyTable struct {
	c        *core
	single   *keyState // of a limiter that is not partitioned
	once     sync.Once // makes single
	stripes  [16]stripe
	count    atomic.Int64 // of the keyStates in all stripes
	evicting atomic.Bool  // evictLoop is running
}

type stripe struct {
	mu sync.Mutex
	m  map[string]*keyState
}

// seed is for hashes of keys.
var seed = maphash.MakeSeed()

// maxKeys bounds the number of keyStates of a limiter. For keys beyond it, rejections are not cached, nothing is borrowed,
// and there is no queue.
const maxKeys = 100_000

// lock returns the keyState of a key, locked. It returns nil if there is none and create is false, if there are too
// many, or if the limiter is closed.
func (table *keyTable) lock(key string, create bool) *keyState {
	for {
		ks := table.findOrCreate(key, create)
		if ks == nil {
			return nil
		}
		ks.mu.Lock()
		if !ks.evicted {
			return ks
		}
		ks.mu.Unlock()
	}
}

// findOrCreate is lock without locking: the keyState can have been evicted.
func (table *keyTable) findOrCreate(key string, create bool) *keyState {
	if !table.c.partitioned {
		table.once.Do(func() { table.single = &keyState{c: table.c, key: key} })
		return table.single
	}
	st := &table.stripes[maphash.String(seed, key)%uint64(len(table.stripes))]
	st.mu.Lock()
	ks := st.m[key]
	made := ks == nil && create && table.count.Load() < maxKeys && !table.c.closed.Load()
	if made {
		if st.m == nil {
			st.m = map[string]*keyState{}
		}
		ks = &keyState{c: table.c, key: key}
		st.m[key] = ks
		table.count.Add(1)
	}
	st.mu.Unlock()
	if made && table.evicting.CompareAndSwap(false, true) {
		table.c.s.calls.Go(table.evictLoop)
	}
	return ks
}

const (
	// evictInterval is how often idle keyStates are evicted.
	evictInterval = 5 * time.Second
	// evictBatch bounds how many keyStates are looked at while a stripe is locked.
	evictBatch = 256
)

// evictLoop evicts idle keyStates until none is left.
func (table *keyTable) evictLoop() {
	for table.c.s.calls.Sleep(evictInterval) {
		left := 0
		for i := range table.stripes {
			left += table.stripes[i].evictIdle(&table.count)
		}
		if left > 0 {
			continue
		}
		table.evicting.Store(false)
		if table.empty() || !table.evicting.CompareAndSwap(false, true) {
			return
		}
	}
}

// evictIdle returns how many keyStates are left.
func (st *stripe) evictIdle(count *atomic.Int64) int {
	for batch := range slices.Chunk(st.all(), evictBatch) {
		count.Add(-st.evictIdleOf(batch))
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.m) == 0 {
		st.m = nil // a map does not shrink
	}
	return len(st.m)
}

func (st *stripe) evictIdleOf(batch []*keyState) (evicted int64) {
	now := time.Now()
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, ks := range batch {
		if !ks.mu.TryLock() {
			continue // it is in use
		}
		if ks.idle(now) {
			ks.evicted = true
			delete(st.m, ks.key)
			evicted++
		}
		ks.mu.Unlock()
	}
	return evicted
}

func (st *stripe) all() []*keyState {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Collect(maps.Values(st.m))
}

func (table *keyTable) empty() bool {
	for i := range table.stripes {
		if len(table.stripes[i].all()) > 0 {
			return false
		}
	}
	return true
}

// idle reports whether nothing would change if ks were replaced by a new keyState.
func (ks *keyState) idle(now time.Time) bool {
	return ks.queue.Empty() && !ks.serving && ks.held == 0 && !ks.hasTurns(now) && !now.Before(ks.rejection.until) &&
		(ks.blocks == nil || ks.blocks.fetching == nil && ks.blocks.Left(now) == 0)
}

// each calls f with every keyState, locked.
func (table *keyTable) each(f func(*keyState)) {
	locked := func(ks *keyState) {
		ks.mu.Lock()
		defer ks.mu.Unlock()
		f(ks)
	}
	if !table.c.partitioned {
		locked(table.findOrCreate("", true))
		return
	}
	for i := range table.stripes {
		for _, ks := range table.stripes[i].all() {
			locked(ks)
		}
	}
}

// close rejects all waiters, returns borrowed blocks and forgets the keys: in a program whose limiters are closed and made
// again, those with long windows would pile up. The limiter counts as closed already, so no key is made any more.
func (table *keyTable) close() {
	for i := range table.stripes {
		st := &table.stripes[i]
		st.mu.Lock()
		all := st.m
		st.m = nil
		st.mu.Unlock()
		table.count.Add(-int64(len(all)))
		for _, ks := range all {
			ks.mu.Lock()
			ks.close()
			ks.evicted = true
			ks.mu.Unlock()
		}
	}
	if !table.c.partitioned {
		ks := table.findOrCreate("", true)
		ks.mu.Lock()
		defer ks.mu.Unlock()
		ks.close()
	}
}

// close rejects all waiters and returns borrowed blocks. The keyState is locked.
func (ks *keyState) close() {
	for w := range ks.queue.All(limiter.OldestFirst) {
		ks.queue.answer(w, custom.Rejected(0, limiter.ReasonClosed))
	}
	ks.returnBlocks()
	ks.wake()
}

// reconfigured applies new limits to waiters and to what is remembered. Blocks are returned, because under the new
// limits their permits can be restored earlier, or be too many.
func (table *keyTable) reconfigured() {
	most := table.c.limits().Permits
	table.each(func(ks *keyState) {
		ks.rejection = rememberedRejection{}
		if ks.turns != nil {
			ks.turns.Reset()
		}
		ks.returnBlocks()
		for w := range ks.queue.All(limiter.OldestFirst) {
			if w.Permits > most {
				ks.queue.answer(w, custom.Rejected(0, limiter.ReasonLimitLowered))
			}
		}
		ks.wake()
	})
}
