package limiter

import (
	"cmp"
	"slices"
	"sync"
)

// A roomMaker finds partitions that may make room for a new one. Up to strictly
// many partitions it looks at all of them each time, and takes the least recently
// used that is idle. With more of them it keeps what it has found for the next
// times, and where it has found nothing it looks only at a few, in turn, for
// twenty times as long as that took: a flood of new keys must not cost a look at
// every partition each.
type roomMaker[K comparable] struct {
	mu        sync.Mutex
	found     []candidate[K] // the next one last
	shard     int            // where to look around next
	chain     int
	notBefore int64 // a moment, where there is more to look at than strictly
}

type candidate[K comparable] struct {
	entry *entry[K]
	shard *shard[K]
	used  uint32
}

const (
	strictly   = 1024
	keepAtMost = 1024
	// lookAtLeast is at how many dozens of partitions a new key looks in any case.
	lookAtLeast = 4
)

// reserve counts a new partition, and makes room for it where there is none.
func (p *PartitionedLimiter[R, K]) reserve() bool {
	for {
		n, most := p.count.Load(), p.max.Load()
		switch {
		case most == 0 || n < most:
			if p.count.CompareAndSwap(n, n+1) {
				return true
			}
		case !p.makeRoom():
			return false
		}
	}
}

// makeRoom forgets the least recently used partition of those that are idle, and
// so full: a new one in its place would answer the same.
func (p *PartitionedLimiter[R, K]) makeRoom() bool {
	e := p.findRoom()
	if e == nil {
		return false
	}
	p.forget(e) // its Close may take its time, and may be anybody's
	return true
}

// findRoom takes that partition out; nil if there is none.
func (p *PartitionedLimiter[R, K]) findRoom() *entry[K] {
	r := &p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := p.takeFound(); e != nil {
		return e
	}
	strict := p.max.Load() <= strictly
	began := clock()
	if !strict && began < r.notBefore {
		p.lookAround()
		return p.takeFound()
	}
	p.lookForRoom()
	e := p.takeFound()
	switch {
	case strict:
		r.found = nil
	case e == nil:
		ended := clock()
		r.notBefore = ended + restFactor*(ended-began)
	}
	return e
}

// takeFound takes out the first that is still as it was found.
func (p *PartitionedLimiter[R, K]) takeFound() *entry[K] {
	r := &p.room
	for len(r.found) > 0 {
		c := r.found[len(r.found)-1]
		r.found = r.found[:len(r.found)-1]
		if c.entry.used.Load() == c.used && c.shard.takeOut(c.entry, p.leastIdle(c.entry)) {
			return c.entry
		}
	}
	return nil
}

// lookAround looks at the next few partitions in turn.
func (p *PartitionedLimiter[R, K]) lookAround() {
	r := &p.room
	for range lookAtLeast {
		s := &p.shards[r.shard]
		more := s.visit(r.chain, func(e *entry[K]) { p.consider(s, e) })
		if r.chain += visitChains; !more {
			r.shard, r.chain = (r.shard+1)%len(p.shards), 0
		}
		if len(r.found) > 0 {
			return
		}
	}
}

// consider collects a partition if it may go.
func (p *PartitionedLimiter[R, K]) consider(s *shard[K], e *entry[K]) {
	if left, idle := p.timeLeft(e); idle && p.idle.Load()-left > p.leastIdle(e) {
		p.room.found = append(p.room.found, candidate[K]{entry: e, shard: s, used: e.used.Load()})
	}
}

// leastIdle is for how long a partition must have been idle, and longer, to make
// room. Of a limiter that is no [Idler] it is not known before its time is up
// whether something would be forgotten with it.
func (p *PartitionedLimiter[R, K]) leastIdle(e *entry[K]) int64 {
	if _, guessed := e.limiter.(*tracked); guessed {
		return p.idle.Load()
	}
	return -1
}

// lookForRoom collects the partitions that may go, the least recently used last.
func (p *PartitionedLimiter[R, K]) lookForRoom() {
	r := &p.room
	for i := range p.shards {
		s := &p.shards[i]
		for from, more := 0, true; more; from += visitChains {
			more = s.visit(from, func(e *entry[K]) { p.consider(s, e) })
		}
	}
	uses := p.uses.Load()
	slices.SortFunc(r.found, func(a, b candidate[K]) int { return cmp.Compare(uses-a.used, uses-b.used) })
	if extra := len(r.found) - keepAtMost; extra > 0 {
		r.found = slices.Clone(r.found[extra:])
	}
}
