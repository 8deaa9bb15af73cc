package limiter

import (
	"slices"
	"sync"
)

// A roomMaker finds partitions that may make room for a new one. Up to strictly
// many partitions it looks at all of them each time, and forgets the least
// recently used that is idle. With more of them it keeps what it has found for
// the next times, and where it has found nothing it does not look again for twenty
// times as long as that took: a flood of new keys must not cost a look at every
// partition each.
type roomMaker[K comparable] struct {
	mu        sync.Mutex
	found     []candidate[K] // the next one last
	notBefore int64          // a moment, where there is more to look at than strictly
}

type candidate[K comparable] struct {
	entry *entry[K]
	shard *shard[K]
	used  uint32
}

const (
	strictly   = 1024
	keepAtMost = 1024
)

// reserve counts a new partition, and makes room for it where there is none.
func (p *PartitionedLimiter[R, K]) reserve() bool {
	for {
		n := p.count.Load()
		switch {
		case p.max == 0 || n < p.max:
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
	r := &p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.forgetFound() {
		return true
	}
	started := clock()
	if p.max > strictly && started < r.notBefore {
		return false
	}
	p.lookForRoom()
	if p.forgetFound() {
		if p.max <= strictly {
			r.found = nil
		}
		return true
	}
	if p.max > strictly {
		ended := clock()
		r.notBefore = ended + restFactor*(ended-started)
	}
	return false
}

// forgetFound forgets the first that is still as it was found.
func (p *PartitionedLimiter[R, K]) forgetFound() bool {
	r := &p.room
	for len(r.found) > 0 {
		c := r.found[len(r.found)-1]
		r.found = r.found[:len(r.found)-1]
		if p.forget(c.shard, c.entry, func(e *entry[K]) bool {
			return e.used.Load() == c.used && p.mayGo(e)
		}) {
			return true
		}
	}
	return false
}

// mayGo tells whether a partition can be forgotten without forgetting anything.
// Of a limiter that is no [Idler] that is not known before its time is up.
func (p *PartitionedLimiter[R, K]) mayGo(e *entry[K]) bool {
	left, idle := p.timeLeft(e)
	if _, guessed := e.limiter.(*tracked); guessed {
		return idle && left < 0
	}
	return idle
}

// lookForRoom collects the partitions that may go, the least recently used last.
func (p *PartitionedLimiter[R, K]) lookForRoom() {
	var found []candidate[K]
	for i := range p.shards {
		s := &p.shards[i]
		for from, more := 0, true; more; from += visitChains {
			more = s.visit(from, func(e *entry[K]) {
				if p.mayGo(e) {
					found = append(found, candidate[K]{entry: e, shard: s, used: e.used.Load()})
				}
			})
		}
	}
	uses := p.uses.Load()
	slices.SortFunc(found, func(a, b candidate[K]) int {
		return int(int32(uses-a.used) - int32(uses-b.used))
	})
	if extra := len(found) - keepAtMost; extra > 0 {
		found = append([]candidate[K](nil), found[extra:]...)
	}
	p.room.found = found
}
