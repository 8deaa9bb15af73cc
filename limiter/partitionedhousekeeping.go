package limiter

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

const (
	// replenishEvery is how often TryReplenish is called, and the shortest time between two searches for idle
	// partitions.
	replenishEvery = int64(100 * time.Millisecond)
	// pauseFactor: the search for idle partitions pauses for that many times as long as it took.
	pauseFactor = 20
	// visitChains is how many chains of a table are visited under one lock, which takes some ten microseconds.
	visitChains = 32
	// mergeChains is how many chains of a table are merged under one lock.
	mergeChains = 512
)

// firstVisit returns when the janitor has to be scheduled for a new partition, or never if it is scheduled early enough
// already. The shard is locked.
func (p *PartitionedLimiter[R, K]) firstVisit(s *shard[K], manual bool, now int64) int64 {
	due := saturate.Add(now, saturate.Add(p.idle.Load(), 1))
	sooner := due < s.sweepAt
	s.sweepAt = min(s.sweepAt, due)
	switch {
	case manual:
		p.manualCount.Add(1)
		return now + replenishEvery
	case sooner || inBubble(now) || p.janitor.bubble.Load(): // the present timer can be another bubble's
		return max(due, p.pauseEnds(now))
	}
	return never
}

// pauseEnds returns until when the search for idle partitions pauses. A moment of another clock, that of a bubble or
// the one outside, does not count.
func (p *PartitionedLimiter[R, K]) pauseEnds(now int64) int64 {
	if end := p.pausedUntil.Load(); inBubble(end) == inBubble(now) {
		return end
	}
	return unknown
}

// uncount takes a partition that was forgotten out of the counts.
func (p *PartitionedLimiter[R, K]) uncount(e *entry[K]) {
	p.count.Add(-1)
	if p.manualCount.Load() > 0 && e.replenisher() != nil {
		p.manualCount.Add(-1)
	}
}

// housekeep replenishes the limiters that need it and, unless the search pauses, forgets partitions that have been idle
// for long enough. It returns when it has to be called next.
func (p *PartitionedLimiter[R, K]) housekeep(now int64) (next int64) {
	if p.manualCount.Load() > 0 {
		for i := range p.shards {
			p.replenish(&p.shards[i])
		}
	}
	next = never
	began := moment()
	p.waited.Store(0)
	paused := began < p.pauseEnds(began)
	for i := range p.shards {
		if p.closed.Load() {
			return never
		}
		next = min(next, p.sweepIfDue(&p.shards[i], began, paused))
	}
	if !paused {
		ended := moment()
		p.pausedUntil.Store(ended + max(replenishEvery, pauseFactor*(ended-began-p.waited.Load())))
	}
	if p.count.Load() == 0 {
		return never
	}
	next = max(next, p.pauseEnds(now))
	if p.manualCount.Load() > 0 {
		next = min(next, now+replenishEvery)
	}
	return next
}

// sweepIfDue sweeps a shard if a partition of it can have been idle for long enough, unless the search is paused. It
// returns when the shard has to be swept next.
func (p *PartitionedLimiter[R, K]) sweepIfDue(s *shard[K], now int64, paused bool) (due int64) {
	s.mu.Lock()
	due = s.sweepAt
	if due > now || paused {
		s.mu.Unlock()
		return due
	}
	s.sweepAt = never // an entry that is inserted from here on sets it again
	s.mu.Unlock()
	return p.sweep(s, now)
}

// replenish calls TryReplenish of the limiters that need it, without a lock.
func (p *PartitionedLimiter[R, K]) replenish(s *shard[K]) {
	for from, more := 0, true; more; from += visitChains {
		var pinned, custom []*entry[K]
		more = s.visit(from, func(e *entry[K]) {
			switch {
			case e.replenisher() == nil:
				return
			case e.builtin():
				pinned = append(pinned, e)
			default:
				custom = append(custom, e)
			}
			e.pins.Add(1)
		})
		for _, e := range pinned {
			e.replenisher().TryReplenish()
			e.unpin()
		}
		p.onReplenish.run(len(custom), func(i int) {
			defer custom[i].unpin()
			t := custom[i].tracked()
			if t.busy.CompareAndSwap(false, true) {
				defer t.busy.Store(false)
				t.manual.TryReplenish()
			}
		})
	}
}

// visit calls f with the entries of up to visitChains chains, beginning with that index, and reports whether there are
// more. The shard is locked meanwhile, so f must not change the table or call the program's code.
func (s *shard[K]) visit(from int, f func(*entry[K])) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chains := s.table.chains()
	to := min(from+visitChains, chains)
	s.table.each(from, to, f)
	return to < chains
}

// sweep forgets the partitions of a shard that have been idle for too long, and returns when it has to be called next.
func (p *PartitionedLimiter[R, K]) sweep(s *shard[K], now int64) (due int64) {
	due = never
	dueIfUsed := saturate.Add(now, saturate.Add(p.idle.Load(), 1))
	for from, more := 0, true; more; from += visitChains {
		var old, toAsk []*entry[K]
		more = s.visit(from, func(e *entry[K]) {
			left, idle := p.timeLeft(e, now)
			switch {
			case e.mustAsk():
				if p.mayForget(e) {
					toAsk = append(toAsk, e)
				}
				due = min(due, dueIfUsed)
			case idle && left < 0:
				old = append(old, e)
			default:
				due = min(due, saturate.Add(now, saturate.Add(max(left, 0), 1)))
			}
		})
		for _, e := range old {
			if s.removeIdle(e, p.idle.Load(), now) {
				p.forget(e)
			} else { // it has been used since
				due = min(due, dueIfUsed)
			}
		}
		lost := p.onIdle.run(len(toAsk), func(i int) {
			e := toAsk[i]
			left, out := s.askAndRemove(e, p.idle.Load())
			if out {
				p.forget(e)
			} else {
				s.noteDue(saturate.Add(now, saturate.Add(left, 1)))
			}
		})
		p.waited.Add(lost)
	}
	return s.shrinkTable(due)
}

// noteDue makes the janitor sweep the shard at that moment or earlier.
func (s *shard[K]) noteDue(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepAt = min(s.sweepAt, at)
}

// timeLeft returns for how long a partition can stay idle before it is forgotten. If it is in use or its limiter has to
// be asked, timeLeft returns the whole IdleTimeout. The shard is locked.
func (p *PartitionedLimiter[R, K]) timeLeft(e *entry[K], now int64) (left int64, idle bool) {
	if e.pins.Load() > 0 || e.mustAsk() || !p.mayForget(e) {
		return p.idle.Load(), false
	}
	d, idle := e.idleAsOf(now)
	if !idle {
		return p.idle.Load(), false
	}
	return p.idle.Load() - int64(d), true
}

// mayForget reports whether the limiter of e could be closed now; see closesAtMost.
func (p *PartitionedLimiter[R, K]) mayForget(e *entry[K]) bool {
	return p.onClose.running.Load() < closesAtMost || e.builtin()
}

// askAndRemove is [shard.removeIdle] for a custom limiter, whose IdleDuration is called without a lock. The entry is
// removed only if the limiter has not been used since that call. left is for how long the limiter can stay idle before
// it is removed.
func (s *shard[K]) askAndRemove(e *entry[K], minIdle int64) (left int64, out bool) {
	t := e.tracked()
	if e.pins.Load() > 0 || !t.busy.CompareAndSwap(false, true) {
		return minIdle, false
	}
	defer t.busy.Store(false)
	calls := t.calls.Load()
	d, idle := t.idler.IdleDuration()
	switch {
	case !idle:
		return minIdle, false
	case int64(d) <= minIdle:
		return minIdle - int64(d), false
	}
	return minIdle, s.remove(e, func() bool { return t.calls.Load() == calls })
}

// removeIdle takes an entry out of its shard if it is not in use and has been idle for more than minIdle nanoseconds.
func (s *shard[K]) removeIdle(e *entry[K], minIdle, now int64) (out bool) {
	return s.remove(e, func() bool { return e.closeIfIdle(minIdle, now) })
}

// remove takes an entry out of its shard if the entry is not pinned and allowed returns true. While allowed runs, no
// caller can pin the entry.
func (s *shard[K]) remove(e *entry[K], allowed func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.table.has(e) || !e.pins.CompareAndSwap(0, forgotten) {
		return false
	}
	if !allowed() {
		e.pins.Add(-forgotten)
		return false
	}
	s.table.remove(e)
	return true
}

// forget closes the limiter of a partition that was taken out. It can run in a call for another key, which must not see
// a panic of this limiter or wait for it.
func (p *PartitionedLimiter[R, K]) forget(e *entry[K]) {
	p.uncount(e)
	switch {
	case e.clocked():
		return // closeIfIdle has closed it
	case e.builtin():
		_ = closeLimiter(e.limiter()) // its Close returns nil
		return
	}
	p.onClose.run(1, func(int) { p.janitor.failed(closeLimiter(e.limiter())) })
}

// shrinkTable gives memory back after a sweep, and returns when the next one is due.
func (s *shard[K]) shrinkTable(due int64) int64 {
	for more := true; more; {
		s.mu.Lock()
		more = s.table.shrink(mergeChains)
		s.sweepAt = min(s.sweepAt, due)
		due = s.sweepAt
		s.mu.Unlock()
	}
	return due
}
