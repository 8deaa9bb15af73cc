package limiter

import (
	"slices"
	"sync/atomic"
	"time"
)

// A new key beyond MaxPartitions evicts partitions that are idle. It samples sampleSize partitions and evicts up to
// sampleEvict of them, the stalest first: one for itself and one for the next new key, because most of the time goes to
// reading the sample from memory. If sampleInUse of the stalest are in use, it gives up on the sample, because fresher
// partitions are likely to be in use, too. The sample is a run of the table, which is as good as a random one, because
// the table is ordered by a hash with a secret seed. If there are no more than sampleAll partitions, the new key tries
// all of them and evicts one.
//
// If none of those tried is idle, the new key scans the table for scanAtMost. After a scan, new keys only sample for
// pauseFactor times as long as the scan took. So a new key of a flood looks at few partitions, and no caller is stalled
// for longer than scanAtMost.
const (
	sampleSize  = 8
	sampleEvict = 2
	sampleInUse = 2
	sampleAll   = 64
	scanAtMost  = 100 * time.Microsecond
)

// A candidate is a partition that can be evicted.
type candidate[K comparable] struct {
	entry *entry[K]
	shard *shard[K]
	used  uint32
}

// Recency is counted in epochs, one for each new partition. The number of an epoch is a multiple of usesPerEpoch. A use
// adds 1 to the recency, unless the partition was the last one used, up to the next epoch's number less 1. So the order
// of the first uses after a new key is known. Later uses in the epoch leave the recency as it is, and write to a
// partition at most once.
const usesPerEpoch = 64

// use makes a partition the most recently used one.
func (p *PartitionedLimiter[R, K]) use(e *entry[K]) {
	if p.max.Load() == 0 {
		return
	}
	now := p.recency.Load()
	if e.used.Load() == now {
		return
	}
	if now%usesPerEpoch < usesPerEpoch-1 {
		now = p.recency.Add(1)
	}
	e.used.Store(now)
}

// reserve counts a new partition. If there are MaxPartitions, it evicts one first, and returns false if it cannot.
func (p *PartitionedLimiter[R, K]) reserve(now int64) bool {
	for {
		n, most := p.count.Load(), p.max.Load()
		switch {
		case most == 0:
			p.count.Add(1)
			return true
		case n < most:
			if p.count.CompareAndSwap(n, n+1) {
				p.recency.Add(usesPerEpoch - p.recency.Load()%usesPerEpoch) // the next epoch
				return true
			}
		case !p.evict(now):
			return false
		}
	}
}

// evict forgets partitions that are idle, and so full: new limiters in their place decide the same. It returns false if
// it finds none.
func (p *PartitionedLimiter[R, K]) evict(now int64) bool {
	return p.evictSampled(now) || p.mayScan() && p.evictScanned(now)
}

// evictSampled evicts the stalest of a sample.
func (p *PartitionedLimiter[R, K]) evictSampled(now int64) bool {
	size, evict, inUse := sampleSize, sampleEvict, sampleInUse
	if p.count.Load() <= sampleAll {
		size, evict, inUse = sampleAll, 1, sampleAll
	}
	var buffer [sampleAll]candidate[K]
	found := buffer[:0]
	first := p.sampleShard.Add(1)
	for i := range p.shards {
		s := &p.shards[(int(first)+i)%len(p.shards)]
		if found, _ = s.sample(found, size); len(found) >= size {
			break
		}
	}
	return p.evictStalest(found, evict, inUse, now)
}

// mayScan reports whether enough time has passed since the last scan.
func (p *PartitionedLimiter[R, K]) mayScan() bool {
	now, earliest := moment(), p.noScanBefore.Load()
	return now >= earliest || inBubble(now) != inBubble(earliest)
}

// evictScanned evicts the first idle partition that it finds within scanAtMost.
func (p *PartitionedLimiter[R, K]) evictScanned(now int64) bool {
	began, took := moment(), int64(0)
	defer func() { p.noScanBefore.Store(began + (1+pauseFactor)*took) }()
	first := p.sampleShard.Load()
	for i := range p.shards {
		p.sampleShard.Store(first + uint32(i))
		s := &p.shards[(int(first)+i)%len(p.shards)]
		for chains := s.table.chains(); chains > 0; {
			var buffer [sampleAll]candidate[K]
			found, looked := s.sample(buffer[:0], sampleAll)
			if p.evictStalest(found, 1, len(found), now) {
				return true
			}
			chains -= max(looked, 1)
			if took = moment() - began; took >= int64(scanAtMost) {
				return false
			}
		}
	}
	return false
}

// sample adds partitions to found until found has size elements or there are no more in the shard. It returns how many
// chains it has visited; the next call continues after them.
func (s *shard[K]) sample(found []candidate[K], size int) (_ []candidate[K], chains int) {
	if s.table.chains() == 0 {
		return found, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for all := s.table.chains(); chains < all && len(found) < size; chains++ {
		if s.sampleFrom >= all {
			s.sampleFrom = 0
		}
		heads := s.table.heads.Load()
		for e := heads.slots[s.sampleFrom].Load(); e != nil && len(found) < cap(found); e = e.next.Load() {
			found = append(found, candidate[K]{entry: e, shard: s, used: e.used.Load()})
		}
		s.sampleFrom++
	}
	return found, chains
}

// evictStalest tries to evict the partitions found, the least recently used first, until it has evicted as many as
// evict says or has met as many in use as inUse says. It reports whether it has evicted one.
func (p *PartitionedLimiter[R, K]) evictStalest(found []candidate[K], evict, inUse int, at int64) (evicted bool) {
	for now := p.recency.Load(); len(found) > 0 && evict > 0 && inUse > 0; {
		stalest := 0
		for i, c := range found {
			if now-c.used > now-found[stalest].used {
				stalest = i
			}
		}
		c := found[stalest]
		if c.entry.used.Load() == c.used && p.tryEvict(c, at) {
			p.forget(c.entry) // without a lock: its Close can be slow
			evicted = true
			evict--
		} else {
			inUse--
		}
		found = slices.Delete(found, stalest, stalest+1)
	}
	return evicted
}

// tryEvict takes a partition out of its shard if it is idle.
func (p *PartitionedLimiter[R, K]) tryEvict(c candidate[K], now int64) bool {
	if c.entry.pins.Load() > 0 || !p.mayForget(c.entry) {
		return false
	}
	minIdle := p.evictableAfter(c.entry)
	if c.entry.clocked() {
		if _, idle := c.entry.idleAsOf(now); !idle {
			return false // without waiting for the shard's lock
		}
	}
	if !c.entry.mustAsk() {
		return c.shard.removeIdle(c.entry, minIdle, now)
	}
	const takenOut, tooLate = 1, 2
	var outcome atomic.Int32
	p.onIdle.run(1, func(int) {
		_, out := c.shard.askAndRemove(c.entry, minIdle)
		if out && !outcome.CompareAndSwap(0, takenOut) {
			p.forget(c.entry) // the caller has gone on without the answer
		}
	})
	return !outcome.CompareAndSwap(0, tooLate)
}

// evictableAfter returns a duration: if the partition has been idle for longer, it can be evicted. A limiter that is no
// [Idler] counts as idle although permits may still be taken, so it is kept for the IdleTimeout.
func (p *PartitionedLimiter[R, K]) evictableAfter(e *entry[K]) int64 {
	if t := e.tracked(); t != nil && t.idler == nil {
		return p.idle.Load()
	}
	return -1
}
