package limiter

import (
	"time"
	"weak"

	"github.com/weir-go/weir/internal/recovered"
)

// A new key beyond MaxPartitions evicts a partition that is idle. It searches its shard and others, up to shardAtMost
// partitions of each, from their hands on. It takes the first idle one that was not used again since the hand passed it, and after
// searchAtMost partitions without any, the first idle one of the next searchAtMost. If none of them is idle it is rejected, and new
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
		if !p.search(hash, now, true) && !p.search(hash, now, false) {
			if took := moment() - now; p.max.Load() > few {
				p.pausedUntil.Store(now + min((1+pauseFactor)*took, pauseAtMost))
			}
			return false
		}
	}
	return false
}

// search forgets a partition that is idle and, if spare is true, was not used again since the hand passed it. It reports whether it
// has found one.
func (p *partitions[K]) search(hash uint64, now int64, spare bool) bool {
	left := min(searchAtMost, int(p.count.Load()))
	// Shards in an order of the key's own, so that new keys do not all go on where the idle partitions have been used up.
	step := hash>>40 | 1
	for i := uint64(0); left > 0 && i < uint64(len(p.shards))*(searchAtMost/shardAtMost); i++ {
		w := walk{left: min(left, shardAtMost), minIdle: -1, one: true, spare: spare}
		left -= w.left
		s := p.shard(hash + i*step<<32)
		for c := s.next(&w, now); c.entry != nil; c = s.next(&w, now) {
			if p.forget(c, -1) {
				return true
			}
		}
		if w.full > 0 {
			p.count.Add(-1)
			return true
		}
		left += w.left
	}
	return false
}

// forget forgets a partition if its limiter says that it has been idle for more than minIdle nanoseconds, and reports whether it did.
func (p *partitions[K]) forget(c candidate[K], minIdle int64) bool {
	uses := c.tracked.uses.Load()
	if !c.tracked.isIdle(minIdle) || !c.remove(uses) {
		return false
	}
	p.count.Add(-1)
	_ = closeLimiter(c.tracked.Limiter) // no caller can be told
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

// sweepSooner sets a timer in place of one that would fire later, after a change of the options.
func (p *partitions[K]) sweepSooner(now int64) {
	if t, pause := p.sweep.Load(), p.sweepPause(); t != nil && t.due != never && t.due > now+pause {
		p.setTimer(t, now, pause)
	}
}

// setTimer sets the timer in place of t. It keeps no limiter in memory that the program does not use any more.
func (p *partitions[K]) setTimer(t *sweepTimer, now, pause int64) {
	next, of := &sweepTimer{set: now, due: now + pause}, weak.Make(p)
	if p.sweep.CompareAndSwap(t, next) {
		time.AfterFunc(time.Duration(pause), func() {
			if p := of.Value(); p != nil {
				p.housekeep(next)
			}
		})
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
	var w walk
	for i := 0; i < len(p.shards); {
		recovered.Hook("limiter: IdleDuration or Close", func() {
			for ; i < len(p.shards); i, w = i+1, (walk{}) {
				p.sweepShard(&p.shards[i], &w, now)
			}
		})
	}
}

func (p *partitions[K]) sweepShard(s *shard[K], w *walk, now int64) {
	for !w.done {
		w.left, w.minIdle = searchAtMost, p.idle.Load()
		if most := p.max.Load(); most > 0 {
			if excess := p.count.Load() - most; excess > 0 { // a lower MaxPartitions was set
				w.left, w.minIdle = int(min(excess, searchAtMost)), -1
			}
		}
		for c := s.next(w, now); c.entry != nil; c = s.next(w, now) {
			if p.forget(c, w.minIdle) {
				w.seen-- // its place is looked at again
			}
		}
		p.count.Add(-w.full)
		w.full = 0
	}
	s.shrink()
}

// A walk moves the hand of a shard, and round it once at most.
type walk struct {
	minIdle int64 // what has been full for no longer stays
	one     bool  // it ends with the first bucket that it forgets
	spare   bool  // it leaves out what was used again since the hand passed it
	left    int   // partitions that it can still look at
	seen    int   // places
	full    int64 // buckets that it has forgotten, and that still count
	done    bool
}

// next goes on to the next partition that has to be asked with no lock held whether it is idle. It forgets the buckets on the way
// that are full.
func (s *shard[K]) next(w *walk, now int64) (c candidate[K]) {
	if s.places.Load() == nil {
		w.done = true
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for all := s.table(); w.seen < len(all) && w.left > 0 && s.held == 0; {
		i := s.hand % len(all)
		s.hand = i + 1
		w.seen++
		e := all[i].entry.Load()
		if e == nil {
			continue
		}
		w.left--
		if w.spare && all[i].again.Swap(false) {
			continue
		}
		switch found := s.partition(e); {
		case found.tracked != nil:
			if !found.tracked.pinned() {
				return candidate[K]{found, s, all[i].tag.Load()}
			}
		case e.closeIfFull(w.minIdle, now):
			s.removeAt(i)
			w.seen--
			if w.full++; w.one {
				return c
			}
		}
	}
	w.done = w.left > 0
	return c
}

// A candidate is a partition whose limiter has to be asked whether it is idle.
type candidate[K comparable] struct {
	partition[K]
	shard *shard[K]
	tag   uint32 // of its place
}

// remove takes the partition out of its shard, unless its limiter has been used since it had that number of uses.
func (c candidate[K]) remove(uses uint64) bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	i := c.shard.indexOf(c.tag, c.entry)
	if i < 0 || c.shard.held > 0 || c.tracked.pinned() || c.tracked.uses.Load() != uses {
		return false
	}
	c.shard.removeAt(i)
	return true
}
