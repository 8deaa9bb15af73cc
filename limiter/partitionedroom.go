package limiter

import "time"

// A new key beyond MaxPartitions evicts a partition that is idle. It searches its shard and others, up to shardAtMost
// partitions of each, from their hands on. It takes the first idle partition that was not used again since the hand passed
// it before, and otherwise the first idle one. After searchAtMost partitions of which none is idle it is rejected, and new
// keys are rejected without a search for pauseFactor times as long as the search took, but for no longer than pauseAtMost.
// So a flood of keys costs little whether or not partitions are idle, and if a tenth of them are, one is found: by chance
// none of searchAtMost is idle once in 10¹¹ times.
const (
	searchAtMost = 256
	shardAtMost  = 32
	few          = 64 // up to that many partitions are always searched
	pauseFactor  = 20
	pauseAtMost  = int64(time.Millisecond)
)

// reserve counts a new partition, and returns false if there are MaxPartitions.
func (p *PartitionedLimiter[R, K]) reserve() bool {
	for {
		n, most := p.count.Load(), p.max.Load()
		if most > 0 && n >= most {
			return false
		}
		if p.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// makeRoom evicts a partition, counts a new one in its place, and returns true; or it returns false if it finds none that
// is idle. No lock is held.
func (p *PartitionedLimiter[R, K]) makeRoom(hash uint64, now int64) bool {
	const tries = 100 // other new keys can be faster, or there are far too many partitions since MaxPartitions was lowered
	for range tries {
		if p.reserve() {
			return true
		}
		if until := p.pausedUntil.Load(); now < until && inBubble(now) == inBubble(until) {
			return false
		}
		if !p.search(hash, now, false, p.evict) {
			if took := moment() - now; p.max.Load() > few {
				p.pausedUntil.Store(now + min((1+pauseFactor)*took, pauseAtMost))
			}
			return false
		}
	}
	return false
}

// A candidate is a partition that a search or housekeeping has found idle, or has to ask.
type candidate[K comparable] struct {
	partition[K]
	shard *shard[K]
	hash  uint64 // the lower half counts
	used  bool   // again, since the hand passed it
}

// search calls take for idle partitions until it returns true, and reports whether it did. If look is true, it leaves the
// hands and marks as they are.
func (p *PartitionedLimiter[R, K]) search(
	hash uint64, now int64, look bool, take func(c candidate[K], minIdle, now int64) bool,
) bool {
	var used candidate[K]
	left := min(searchAtMost, int(p.count.Load()))
	// Shards in an order of the key's own, so that new keys do not all go on where the idle partitions have been used up.
	step := hash>>40 | 1
	for i := uint64(0); left > 0 && i < uint64(len(p.shards))*(searchAtMost/shardAtMost); i++ {
		w := walk{left: min(left, shardAtMost), look: look}
		left -= w.left
		for {
			c := p.shard(hash+i*step<<32).nextIdle(&w, now)
			if c.entry == nil {
				break
			}
			if c.used && used.entry == nil {
				used = c
			}
			if !c.used && take(c, p.minIdle(c.partition), now) {
				return true
			}
		}
		left += w.left
	}
	return used.entry != nil && take(used, p.minIdle(used.partition), now)
}

// A walk is the part of a search in one shard, from its hand on, and round it once at most.
type walk struct {
	look  bool // the hand stays where it is
	begun bool
	first int // the place that it has begun with
	seen  int // places
	left  int // partitions that it can still look at
}

// nextIdle goes on to the next partition that is idle, or that has to be asked with no lock held.
func (s *shard[K]) nextIdle(w *walk, now int64) (c candidate[K]) {
	if s.places.Load() == nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.begun {
		w.begun, w.first = true, s.hand
	}
	for all := s.table(); w.seen < len(all) && w.left > 0 && s.held == 0; {
		at := &all[(w.first+w.seen)%len(all)]
		w.seen++
		if !w.look {
			s.hand = (w.first + w.seen) % len(all)
		}
		e := at.entry.Load()
		if e == nil {
			continue
		}
		w.left--
		found := s.partition(e)
		if t := found.tracked; t != nil && (t.pinned() || t.busy.Load()) || t == nil && !e.isFull(-1, now, false) {
			continue
		}
		tag := at.tag.Load()
		c = candidate[K]{found, s, tag, tag&usedAgain != 0}
		if c.used && !w.look {
			at.tag.And(^uint64(usedAgain))
		}
		return c
	}
	return c
}

// minIdle returns a duration: if the partition has been idle for longer, it can be evicted. A limiter that is no Idler
// counts as idle although permits may still be taken, so it is kept for the IdleTimeout.
func (p *PartitionedLimiter[R, K]) minIdle(c partition[K]) int64 {
	if c.tracked != nil && !c.tracked.idler {
		return p.idle.Load()
	}
	return -1
}

// isIdle reports whether the partition could be evicted.
func (c candidate[K]) isIdle(minIdle, now int64) bool {
	if c.tracked == nil {
		return c.isFull(minIdle, now, false)
	}
	idle, ok := c.tracked.idle()
	return ok && int64(idle) > minIdle
}

// evict forgets a partition if it has been idle for more than minIdle nanoseconds, and reports whether it did.
func (p *PartitionedLimiter[R, K]) evict(c candidate[K], minIdle, now int64) (evicted bool) {
	p.call("limiter: IdleDuration", c, func() { evicted = p.forget(c, minIdle, now) })
	return evicted
}

// forget is evict on a goroutine that may call a custom limiter.
func (p *PartitionedLimiter[R, K]) forget(c candidate[K], minIdle, now int64) bool {
	if t := c.tracked; t != nil {
		uses := t.uses.Load()
		if !c.isIdle(minIdle, now) || !c.remove(func() bool { return t.uses.Load() == uses && !t.pinned() }) {
			return false
		}
		if t.builtin {
			_ = closeLimiter(t.Limiter) // it returns nil
		} else {
			go p.guard("limiter: Close", func() { p.noteError(closeLimiter(t.Limiter)) })
		}
	} else if !c.remove(func() bool { return c.isFull(minIdle, now, true) }) {
		return false
	}
	p.count.Add(-1)
	return true
}

// remove takes the partition out of its shard if allowed returns true.
func (c candidate[K]) remove(allowed func() bool) bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	i := c.shard.indexOf(c.hash, c.entry)
	if i < 0 || c.shard.held > 0 || !allowed() {
		return false
	}
	c.shard.removeAt(i)
	return true
}
