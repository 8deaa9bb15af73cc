package limiter

import (
	"slices"
	"sync/atomic"
	"time"
)

// How a new key makes room where MaxPartitions others are there. It looks at a few
// partitions, of which it takes the least recently used that is idle. Which come next is
// as good as random, because their order is that of a hash with a seed of its own. Among up
// to lookAtAll it looks at each of them.
//
// Where none of the few is idle it goes on, for lookFor at most, and after that new keys look
// at a few only for twenty times as long: a flood of new keys must neither cost a look at each
// partition for every key, nor hold up the one that looks.
const (
	lookAt    = 8
	lookAtAll = 64
	lookFor   = 100 * time.Microsecond
)

// A candidate is a partition that may make room.
type candidate[K comparable] struct {
	entry *entry[K]
	shard *shard[K]
	used  uint32
}

// A turn is what time is for "least recently used": the number of partitions made so far, times
// usesATurn, and the number of different partitions used since, as far as it is lower. So calls
// for keys that are there stop changing anything that processors share until there is a new key.
const usesATurn = 64

// use makes a partition the most recently used one.
func (p *PartitionedLimiter[R, K]) use(e *entry[K]) {
	if p.max.Load() == 0 {
		return
	}
	turn := p.turn.Load()
	if e.used.Load() == turn {
		return
	}
	if turn%usesATurn < usesATurn-1 {
		turn = p.turn.Add(1)
	}
	e.used.Store(turn)
}

// nextTurn begins the turn of a new partition.
func (p *PartitionedLimiter[R, K]) nextTurn() {
	turn := p.turn.Load()
	p.turn.Add(usesATurn - turn%usesATurn)
}

// reserve counts a new partition, and makes room for it where there is none.
func (p *PartitionedLimiter[R, K]) reserve(now int64) bool {
	for {
		n, most := p.count.Load(), p.max.Load()
		switch {
		case most == 0:
			p.count.Add(1)
			return true
		case n < most:
			if p.count.CompareAndSwap(n, n+1) {
				p.nextTurn()
				return true
			}
		case !p.makeRoom(now):
			return false
		}
	}
}

// makeRoom forgets a partition that is idle, and so full: a new one in its place would
// answer the same.
func (p *PartitionedLimiter[R, K]) makeRoom(now int64) bool {
	e := p.lookAround(now)
	if e == nil && p.mayLookFurther() {
		e = p.lookFurther(now)
	}
	if e == nil {
		return false
	}
	p.forget(e) // its Close may take its time, and may be anybody's
	return true
}

// lookAround looks at a few partitions and takes one of them out; nil if none may go.
func (p *PartitionedLimiter[R, K]) lookAround(now int64) *entry[K] {
	atMost := lookAt
	if p.count.Load() <= lookAtAll {
		atMost = lookAtAll
	}
	var room [lookAtAll]candidate[K]
	found := room[:0]
	first := p.nextShard.Add(1)
	for i := range p.shards {
		s := &p.shards[(int(first)+i)%len(p.shards)]
		if found, _ = s.look(found, atMost); len(found) >= atMost {
			break
		}
	}
	return p.takeStalest(found, now)
}

func (p *PartitionedLimiter[R, K]) mayLookFurther() bool {
	now, rest := clock(), p.notBefore.Load()
	return now >= rest || inBubble(now) != inBubble(rest)
}

// lookFurther looks at all partitions in turn until it has taken one out or its time is up.
func (p *PartitionedLimiter[R, K]) lookFurther(now int64) *entry[K] {
	began, took := clock(), int64(0)
	defer func() { p.notBefore.Store(began + (1+restFactor)*took) }()
	first := p.nextShard.Load()
	for i := range p.shards {
		p.nextShard.Store(first + uint32(i))
		s := &p.shards[(int(first)+i)%len(p.shards)]
		for chains := s.chains(); chains > 0; {
			var room [lookAtAll]candidate[K]
			found, looked := s.look(room[:0], lookAtAll)
			if e := p.takeStalest(found, now); e != nil {
				return e
			}
			chains -= max(looked, 1)
			if took = clock() - began; took >= int64(lookFor) {
				return nil
			}
		}
	}
	return nil
}

// chains is about how many chains the shard has.
func (s *shard[K]) chains() int {
	if heads := s.table.heads.Load(); heads != nil {
		return heads.len()
	}
	return 0
}

// look adds partitions to those found, as long as there are fewer than atMost, and each once. It returns at how
// many chains it has looked; the next call goes on behind them.
func (s *shard[K]) look(found []candidate[K], atMost int) (_ []candidate[K], chains int) {
	if s.chains() == 0 {
		return found, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for all := s.chains(); chains < all && len(found) < atMost; chains++ {
		if s.hand >= all {
			s.hand = 0
		}
		heads := s.table.heads.Load()
		for e := heads.slots[s.hand].Load(); e != nil && len(found) < cap(found); e = e.next.Load() {
			found = append(found, candidate[K]{entry: e, shard: s, used: e.used.Load()})
		}
		s.hand++
	}
	return found, chains
}

// takeStalest takes out the least recently used of those found that may go; nil if none may.
func (p *PartitionedLimiter[R, K]) takeStalest(found []candidate[K], now int64) *entry[K] {
	for turn := p.turn.Load(); len(found) > 0; {
		stalest := 0
		for i, c := range found {
			if turn-c.used > turn-found[stalest].used {
				stalest = i
			}
		}
		c := found[stalest]
		if c.entry.used.Load() == c.used && p.takeCandidate(c, now) {
			return c.entry
		}
		found = slices.Delete(found, stalest, stalest+1)
	}
	return nil
}

// takeCandidate takes a partition out if it may go.
func (p *PartitionedLimiter[R, K]) takeCandidate(c candidate[K], now int64) bool {
	if c.entry.pins.Load() > 0 || !p.mayForget(c.entry) {
		return false
	}
	longer := p.leastIdle(c.entry)
	if !c.entry.mustAsk() {
		return c.shard.takeOut(c.entry, longer, now)
	}
	const takenOut, tooLate = 1, 2
	var outcome atomic.Int32
	p.onIdle.run(1, func(int) {
		_, out := c.shard.askAndTakeOut(c.entry, longer)
		if out && !outcome.CompareAndSwap(0, takenOut) {
			p.forget(c.entry) // the caller has gone on without the answer
		}
	})
	return !outcome.CompareAndSwap(0, tooLate)
}

// leastIdle is for how long a partition must have been idle, and longer, to make
// room. Of a limiter that is no [Idler] it is not known before its time is up
// whether something would be forgotten with it.
func (p *PartitionedLimiter[R, K]) leastIdle(e *entry[K]) int64 {
	if t := e.tracked(); t != nil && t.idler == nil {
		return p.idle.Load()
	}
	return -1
}
