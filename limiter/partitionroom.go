package limiter

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
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

// findRoom takes that partition out; nil if there is none. The roomMaker is locked only while candidates are
// collected: taking one out may call a function of the program's.
func (p *PartitionedLimiter[R, K]) findRoom() *entry[K] {
	if e := p.takeFirst(p.room.pop); e != nil {
		return e
	}
	if p.max.Load() <= strictly {
		found := p.lookForRoom()
		return p.takeFirst(func() (c candidate[K], ok bool) { return popLast(&found) })
	}
	return p.findRoughly()
}

// findRoughly is findRoom with more partitions than strictly many.
func (p *PartitionedLimiter[R, K]) findRoughly() *entry[K] {
	r := &p.room
	r.mu.Lock()
	began := clock()
	all := began >= r.notBefore || inBubble(began) != inBubble(r.notBefore)
	if all {
		r.found = p.lookForRoom()
	} else {
		p.lookAround()
	}
	looked := clock() - began
	r.mu.Unlock()
	e := p.takeFirst(r.pop)
	if e == nil && all {
		r.mu.Lock()
		r.notBefore = clock() + restFactor*looked
		r.mu.Unlock()
	}
	return e
}

// pop returns the next candidate of those that were kept.
func (r *roomMaker[K]) pop() (c candidate[K], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return popLast(&r.found)
}

func popLast[K comparable](found *[]candidate[K]) (c candidate[K], ok bool) {
	last := len(*found) - 1
	if last < 0 {
		return c, false
	}
	c = (*found)[last]
	*found = (*found)[:last]
	return c, true
}

// takeFirst takes out the first candidate that is still as it was found.
func (p *PartitionedLimiter[R, K]) takeFirst(next func() (candidate[K], bool)) *entry[K] {
	for c, ok := next(); ok; c, ok = next() {
		if c.entry.used.Load() == c.used && p.takeCandidate(c) {
			return c.entry
		}
	}
	return nil
}

func (p *PartitionedLimiter[R, K]) takeCandidate(c candidate[K]) bool {
	if !mustAsk(c.entry.limiter) {
		return c.shard.takeOut(c.entry, p.leastIdle(c.entry))
	}
	const takenOut, tooLate = 1, 2
	var outcome atomic.Int32
	p.onIdle.run(1, func(int) {
		_, out := c.shard.askAndTakeOut(c.entry, p.leastIdle(c.entry))
		if out && !outcome.CompareAndSwap(0, takenOut) {
			p.forget(c.entry) // the caller has gone on without the answer
		}
	})
	return !outcome.CompareAndSwap(0, tooLate)
}

// lookAround looks at the next few partitions in turn. The roomMaker is locked.
func (p *PartitionedLimiter[R, K]) lookAround() {
	r := &p.room
	for range lookAtLeast {
		s := &p.shards[r.shard]
		more := s.visit(r.chain, func(e *entry[K]) { r.found = p.consider(r.found, s, e) })
		if r.chain += visitChains; !more {
			r.shard, r.chain = (r.shard+1)%len(p.shards), 0
		}
		if len(r.found) > 0 {
			return
		}
	}
}

// consider adds a partition to those found if it may go, as far as is known without asking it.
func (p *PartitionedLimiter[R, K]) consider(found []candidate[K], s *shard[K], e *entry[K]) []candidate[K] {
	left, idle := p.timeLeft(e)
	if idle && p.idle.Load()-left > p.leastIdle(e) || mustAsk(e.limiter) && e.pins.Load() == 0 && p.mayForget(e) {
		return append(found, candidate[K]{entry: e, shard: s, used: e.used.Load()})
	}
	return found
}

// leastIdle is for how long a partition must have been idle, and longer, to make
// room. Of a limiter that is no [Idler] it is not known before its time is up
// whether something would be forgotten with it.
func (p *PartitionedLimiter[R, K]) leastIdle(e *entry[K]) int64 {
	if t, ok := e.limiter.(*tracked); ok && t.idler == nil {
		return p.idle.Load()
	}
	return -1
}

// lookForRoom returns the partitions that may go, the least recently used last.
func (p *PartitionedLimiter[R, K]) lookForRoom() []candidate[K] {
	var found []candidate[K]
	for i := range p.shards {
		s := &p.shards[i]
		for from, more := 0, true; more; from += visitChains {
			more = s.visit(from, func(e *entry[K]) { found = p.consider(found, s, e) })
		}
	}
	uses := p.uses.Load()
	slices.SortFunc(found, func(a, b candidate[K]) int { return cmp.Compare(uses-a.used, uses-b.used) })
	if extra := len(found) - keepAtMost; extra > 0 {
		found = slices.Clone(found[extra:])
	}
	return found
}
