package limiter

import (
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A new key beyond MaxPartitions evicts a partition that is idle. It searches its shard and others, up to shardAtMost
// partitions of each, from their hands on. It takes the first idle partition that was not used again since the hand passed
// it before, and otherwise the first idle one. After searchAtMost partitions of which none is idle it is rejected, and new
// keys are rejected without a search for pauseFactor times as long as the search took, but for no longer than pauseAtMost.
// So a flood of keys costs little whether or not partitions are idle, and if a tenth of them are, one is found: by chance
// none of searchAtMost is idle once in 10¹¹ times.
//
// Housekeeping sweeps through all partitions, and looks at up to searchAtMost under one lock, which takes some ten microseconds.
const (
	searchAtMost = 256
	shardAtMost  = 32
	few          = 64 // up to that many partitions are always searched
	pauseFactor  = 20
	pauseAtMost  = int64(time.Millisecond)
	sweepEvery   = int64(100 * time.Millisecond) // at most
)

// reserve counts a new partition, and returns false if there are MaxPartitions.
func (p *partitions[K]) reserve() bool {
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

// makeRoom counts a new partition, in the place of one that it evicts if there are MaxPartitions. It returns false if it finds
// none that is idle. No lock is held.
func (p *partitions[K]) makeRoom(hash uint64, now int64) bool {
	const tries = 100 // other new keys can be faster, or there are far too many partitions since MaxPartitions was lowered
	for range tries {
		if p.reserve() {
			return true
		}
		if until := p.pausedUntil.Load(); now < until && inBubble(now) == inBubble(until) {
			return false
		}
		if !p.search(hash, now, false, p.forget) {
			if took := moment() - now; p.max.Load() > few {
				p.pausedUntil.Store(now + min((1+pauseFactor)*took, pauseAtMost))
			}
			return false
		}
	}
	return false
}

// hasRoom reports whether there is room for a new key, or would be.
func (p *partitions[K]) hasRoom(hash uint64) bool {
	most := p.max.Load()
	return most == 0 || p.count.Load() < most || p.search(hash, moment(), true, candidate[K].isIdle)
}

// search calls take for idle partitions until it returns true, and reports whether it did. If look is true, it leaves the
// hands and marks as they are.
func (p *partitions[K]) search(
	hash uint64, now int64, look bool, take func(c candidate[K], minIdle, now int64) bool,
) bool {
	var used candidate[K]
	left := min(searchAtMost, int(p.count.Load()))
	// Shards in an order of the key's own, so that new keys do not all go on where the idle partitions have been used up.
	step := hash>>40 | 1
	for i := uint64(0); left > 0 && i < uint64(len(p.shards))*(searchAtMost/shardAtMost); i++ {
		w := walk{left: min(left, shardAtMost), look: look, minIdle: -1}
		left -= w.left
		for {
			c := p.shard(hash+i*step<<32).next(&w, now)
			if c.entry == nil {
				break
			}
			if c.used && used.entry == nil {
				used = c
			}
			if !c.used && take(c, p.evictAfter(c.tracked), now) {
				return true
			}
		}
		left += w.left
	}
	return used.entry != nil && take(used, p.evictAfter(used.tracked), now)
}

// evictAfter returns a duration: if a partition has been idle for longer, it can be evicted. A limiter that is no Idler
// counts as idle although permits may still be taken, so it is kept for the IdleTimeout.
func (p *partitions[K]) evictAfter(t *tracked) int64 {
	if t != nil && !t.idler {
		return p.idle.Load()
	}
	return -1
}

// forget forgets a partition if it has been idle for more than minIdle nanoseconds, and reports whether it did. It may call a
// custom limiter.
func (p *partitions[K]) forget(c candidate[K], minIdle, now int64) bool {
	t := c.tracked
	if t == nil {
		if !c.remove(func() bool { return c.isFull(minIdle, now, true) }) {
			return false
		}
		p.count.Add(-1)
		return true
	}
	uses := t.uses.Load()
	if !c.isIdle(minIdle, now) || !c.remove(func() bool { return !t.pinned() && t.uses.Load() == uses }) {
		return false
	}
	p.count.Add(-1)
	if err := closeLimiter(t.Limiter); err != nil {
		p.closeError.CompareAndSwap(nil, &err)
	}
	return true
}

// A sweepTimer is a timer for housekeeping. While housekeeping runs, it is never due.
type sweepTimer struct{ set, due int64 }

// sweepPause returns the time from one search for idle partitions to the next.
func (p *partitions[K]) sweepPause() int64 { return max(p.idle.Load()/4, sweepEvery) }

// schedule sets the timer if there is none.
//
// A limiter can be used in a testing/synctest bubble and outside of it, and the timer of a bubble never fires once the bubble
// has ended. So a timer that was set later than now, or should have fired long ago, is of another clock and counts as none.
// No timer is stopped, because stopping that of a bubble from outside ends the process: one that is not the latest does nothing.
func (p *partitions[K]) schedule(now int64) {
	pause := p.sweepPause()
	if t := p.sweep.Load(); t == nil || now < t.set-pause || now-pause > t.due {
		p.setTimer(t, now, pause)
	}
}

// setTimer sets the timer in place of t.
func (p *partitions[K]) setTimer(t *sweepTimer, now, pause int64) {
	next := &sweepTimer{set: now, due: now + pause}
	if p.sweep.CompareAndSwap(t, next) {
		time.AfterFunc(time.Duration(pause), func() { p.housekeep(next) })
	}
}

// housekeep is called by a timer. It forgets partitions that have been idle for long enough, and sets the timer again while there
// are partitions.
func (p *partitions[K]) housekeep(t *sweepTimer) {
	began := moment()
	running := &sweepTimer{set: began, due: never}
	if !p.sweep.CompareAndSwap(t, running) {
		return
	}
	p.sweepAll(began)
	p.sweep.CompareAndSwap(running, nil)
	if ended := moment(); p.count.Load() > 0 && !p.closed.Load() {
		p.setTimer(nil, ended, max(p.sweepPause(), pauseFactor*(ended-began)))
	}
}

// sweepAll forgets the partitions that have been idle for long enough. If a custom limiter panics or calls Goexit, it goes on
// with the next one.
func (p *partitions[K]) sweepAll(now int64) {
	w := walk{look: true}
	for i := 0; i < len(p.shards); {
		recovered.Hook("limiter: IdleDuration or Close", func() {
			for ; i < len(p.shards); i, w = i+1, (walk{look: true}) {
				p.sweepShard(&p.shards[i], &w, now)
			}
		})
	}
}

func (p *partitions[K]) sweepShard(s *shard[K], w *walk, now int64) {
	for !w.done {
		w.left, w.minIdle = searchAtMost, p.mayIdle(nil)
		for c := s.next(w, now); c.entry != nil; c = s.next(w, now) {
			if p.forget(c, p.mayIdle(c.tracked), now) {
				w.seen-- // another one may have moved to its place
			}
		}
	}
	s.shrink()
}

// mayIdle returns for how long a partition may be idle: for no time where a lower MaxPartitions was set.
func (p *partitions[K]) mayIdle(t *tracked) int64 {
	if most := p.max.Load(); most > 0 && p.count.Load() > most {
		return p.evictAfter(t)
	}
	return p.idle.Load()
}

// A walk goes through the places of a shard, from its hand on, and round it once at most.
type walk struct {
	look    bool  // the hand and the marks stay as they are
	minIdle int64 // buckets that have been full for no longer are left out
	left    int   // partitions that it can still look at
	begun   bool
	first   int // the place that it has begun with
	seen    int // places
	done    bool
}

// next goes on to the next partition that is idle, or that has to be asked with no lock held.
func (s *shard[K]) next(w *walk, now int64) (c candidate[K]) {
	if s.places.Load() == nil {
		w.done = true
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
		if t := found.tracked; t != nil && t.pinned() || t == nil && !e.isFull(w.minIdle, now, false) {
			continue
		}
		tag := at.tag.Load()
		c = candidate[K]{found, s, tag, tag&usedAgain != 0}
		if c.used && !w.look {
			at.tag.And(^uint64(usedAgain))
		}
		return c
	}
	w.done = w.left > 0
	return c
}

// A candidate is a partition that a search or housekeeping has found idle, or has to ask.
type candidate[K comparable] struct {
	partition[K]
	shard *shard[K]
	hash  uint64 // the lower half counts
	used  bool   // again, since the hand passed it
}

// isIdle reports whether the partition could be evicted.
func (c candidate[K]) isIdle(minIdle, now int64) bool {
	if c.tracked == nil {
		return c.isFull(minIdle, now, false)
	}
	idle, ok := c.tracked.idle()
	return ok && int64(idle) > minIdle
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
