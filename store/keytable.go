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
	shards   [16]keyShard // by hash, so that few callers wait for each other
	count    atomic.Int64 // of the keyStates in all shards
	evicting atomic.Bool  // evict is due
}

type keyShard struct {
	mu sync.Mutex
	m  map[string]*keyState
}

// seed is for hashes of keys.
var seed = maphash.MakeSeed()

const (
	// maxKeys bounds the number of keyStates of a limiter. For keys beyond it, rejections are not cached, nothing is borrowed,
	// and there is no queue.
	maxKeys = 100_000
	// evictInterval is how often idle keyStates are evicted.
	evictInterval = 5 * time.Second
)

func (table *keyTable) shardOf(key string) *keyShard {
	return &table.shards[maphash.String(seed, key)%uint64(len(table.shards))]
}

// lock returns the keyState of a key, locked. It returns nil if there is none and create is false, if there are too
// many, or if the limiter is closed.
func (table *keyTable) lock(key string, create bool) *keyState {
	for {
		ks := table.find(key, create)
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

// find is lock without locking: the keyState can have been evicted.
func (table *keyTable) find(key string, create bool) *keyState {
	shard := table.shardOf(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	ks := shard.m[key]
	if ks != nil || !create || table.count.Load() >= maxKeys || table.c.closed.Load() {
		return ks
	}
	if shard.m == nil {
		shard.m = map[string]*keyState{}
	}
	ks = newKeyState(table.c, key)
	shard.m[key] = ks
	table.count.Add(1)
	table.evictLater()
	return ks
}

func (table *keyTable) evictLater() {
	if table.count.Load() > 0 && table.evicting.CompareAndSwap(false, true) {
		time.AfterFunc(evictInterval, table.evict)
	}
}

// evict evicts idle keyStates, until none is left.
func (table *keyTable) evict() {
	now := time.Now()
	table.each(func(ks *keyState) {
		if ks.idle(now) {
			table.remove(ks)
		}
	})
	table.evicting.Store(false)
	table.evictLater()
}

// remove removes a keyState, which is locked.
func (table *keyTable) remove(ks *keyState) {
	ks.evicted = true
	shard := table.shardOf(ks.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.m, ks.key)
	if len(shard.m) == 0 {
		shard.m = nil // a map does not shrink
	}
	table.count.Add(-1)
}

// idle reports whether nothing would change if ks were replaced by a new keyState.
func (ks *keyState) idle(now time.Time) bool {
	return ks.queue.Empty() && !ks.queue.serving && ks.held == 0 && !ks.queue.hasTurns(now) && !now.Before(ks.rejection.until) &&
		(ks.blocks == nil || ks.blocks.fetching == nil && ks.blocks.Left(now) == 0)
}

// each calls f with every keyState, locked.
func (table *keyTable) each(f func(*keyState)) {
	for i := range table.shards {
		shard := &table.shards[i]
		shard.mu.Lock()
		all := slices.Collect(maps.Values(shard.m))
		shard.mu.Unlock()
		for _, ks := range all {
			ks.mu.Lock()
			if !ks.evicted {
				f(ks)
			}
			ks.mu.Unlock()
		}
	}
}

// close rejects all waiters, returns borrowed blocks and forgets the keys: in a program whose limiters are closed and made
// again, those with long windows would pile up. The limiter counts as closed already, so no key is made any more.
func (table *keyTable) close() {
	table.each(func(ks *keyState) {
		ks.close()
		table.remove(ks)
	})
}

// close rejects all waiters and returns borrowed blocks. The keyState is locked.
func (ks *keyState) close() {
	for w := range ks.queue.All(limiter.OldestFirst) {
		ks.queue.answer(w, custom.Rejected(0, limiter.ReasonClosed))
	}
	ks.returnBlocks()
	ks.queue.wake()
}

// reconfigured applies new limits to waiters and to what is remembered. Blocks are returned, because under the new
// limits their permits can be restored earlier, or be too many.
func (table *keyTable) reconfigured() {
	most := table.c.limits().Permits
	table.each(func(ks *keyState) {
		ks.rejection = rememberedRejection{}
		if ks.queue.turns != nil {
			ks.queue.turns.Reset()
		}
		ks.returnBlocks()
		for w := range ks.queue.All(limiter.OldestFirst) {
			if w.Permits > most {
				ks.queue.answer(w, custom.Rejected(0, limiter.ReasonLimitLowered))
			}
		}
		ks.queue.wake()
	})
}
