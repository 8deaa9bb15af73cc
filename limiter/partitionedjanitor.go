package limiter

import (
	"sync"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

const (
	// replenishEvery is how often partitions are replenished that do not do so by
	// themselves, and the shortest time between two visits to the others.
	replenishEvery = int64(100 * time.Millisecond)
	// pauseFactor: housekeeping rests for so many times as long as it worked.
	pauseFactor = 20
	// visitChains is how many chains of a table are visited under one lock, some
	// ten microseconds' worth.
	visitChains = 32
	// mergeChains is how many chains of a table are merged under one lock.
	mergeChains = 512
)

// A janitor calls work at the moment that was asked for, one call at a time. It
// has a timer only while a call is due.
//
// A limiter may be used in a testing/synctest bubble and outside of it. A bubble's timer never fires once the
// bubble has ended, and stopping it from outside ends the process. So a timer that was set in a bubble is
// never touched again: it finds that it is an old one. In a bubble each request sets a timer, because the
// one there is may be another bubble's.
type janitor struct {
	work func(now int64) (next int64) // returns when it wants to be called next, or never

	mu      sync.Mutex
	timer   *time.Timer
	turn    int   // the number of calls begun: by which a timer knows that it is an old one
	at      int64 // what the timer is set for; while work runs, what was asked for meanwhile
	bubble  bool  // the timer was set in a bubble
	running bool
	stopped bool
	err     error // the first from closing a partition that was forgotten
}

// schedule asks for a call at that moment or before.
func (k *janitor) schedule(at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(at)
}

func (k *janitor) set(at int64) {
	if k.stopped || at == never {
		return
	}
	if k.running {
		k.at = min(k.at, at)
		return
	}
	now := moment()
	bubble := inBubble(now)
	switch {
	case k.timer == nil || bubble || k.bubble:
		k.drop()
		turn := k.turn
		k.at, k.bubble = at, bubble
		k.timer = time.AfterFunc(until(at, now), func() { k.run(turn) })
	case at < k.at:
		k.at = at
		k.timer.Reset(until(at, now))
	}
}

// drop lets go of the timer.
func (k *janitor) drop() {
	if k.timer != nil && !k.bubble {
		k.timer.Stop()
	}
	k.timer = nil
}

func (k *janitor) run(turn int) {
	k.mu.Lock()
	if k.stopped || k.running || turn != k.turn {
		k.mu.Unlock()
		return
	}
	k.turn++
	k.running, k.timer, k.at = true, nil, never
	k.mu.Unlock()

	next := moment() + replenishEvery // if work does not return
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running = false
		k.set(min(next, k.at))
	}()
	next = k.work(moment())
}

func (k *janitor) failed(err error) {
	if err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
	}
}

// stop ends it and returns the first error. A call that runs goes on to its end.
func (k *janitor) stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.drop()
	return k.err
}

// firstVisit is when a new partition wants to be visited, or never if there is a visit before. The
// shard is locked.
func (p *PartitionedLimiter[R, K]) firstVisit(s *shard[K], driven bool, now int64) int64 {
	due := saturate.Add(now, saturate.Add(p.idle.Load(), 1))
	sooner := due < s.sweepAt
	s.sweepAt = min(s.sweepAt, due)
	switch {
	case driven:
		p.manualCount.Add(1)
		return now + replenishEvery
	case sooner || inBubble(now): // the timer that there is may be another bubble's
		return max(due, p.pauseEnds(now))
	}
	return never
}

// resting is until when housekeeping rests. A moment of another clock, a bubble's or the one outside, has no
// meaning for this one.
func (p *PartitionedLimiter[R, K]) pauseEnds(now int64) int64 {
	if rest := p.pausedUntil.Load(); inBubble(rest) == inBubble(now) {
		return rest
	}
	return unknown
}

// uncount takes a partition that was forgotten out of the numbers.
func (p *PartitionedLimiter[R, K]) uncount(e *entry[K]) {
	p.count.Add(-1)
	if p.manualCount.Load() > 0 && e.replenisher() != nil {
		p.manualCount.Add(-1)
	}
}

// keep is the housekeeping: it replenishes what is to be replenished, and forgets
// what has been idle for long enough, unless it has to rest from that.
func (p *PartitionedLimiter[R, K]) housekeep(now int64) (next int64) {
	if p.manualCount.Load() > 0 {
		for i := range p.shards {
			p.replenish(&p.shards[i])
		}
	}
	next = never
	began := moment()
	p.waited.Store(0)
	sweep := began >= p.pauseEnds(began)
	for i := range p.shards {
		if p.closed.Load() {
			return never
		}
		next = min(next, p.visitIfDue(&p.shards[i], began, sweep))
	}
	if sweep {
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

// visitIfDue sweeps a shard in which a partition may be due, and returns when one
// may be due next.
func (p *PartitionedLimiter[R, K]) visitIfDue(s *shard[K], now int64, sweep bool) (due int64) {
	s.mu.Lock()
	due = s.sweepAt
	if due > now || !sweep {
		s.mu.Unlock()
		return due
	}
	s.sweepAt = never // what is inserted from here on sets it again
	s.mu.Unlock()
	return p.sweep(s, now)
}

// replenish calls TryReplenish of the limiters that have to be driven, without holding a lock.
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

// visit calls f with the entries of some chains, from that one on, and returns
// whether there are more. The shard is locked meanwhile; f changes nothing in the
// table, and calls no function of the program's.
func (s *shard[K]) visit(from int, f func(*entry[K])) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heads := s.table.heads.Load()
	if heads == nil {
		return false
	}
	to := min(from+visitChains, heads.len())
	for i := from; i < to; i++ {
		for e := heads.slots[i].Load(); e != nil; e = e.next.Load() {
			f(e)
		}
	}
	return to < heads.len()
}

// sweep forgets the partitions of a shard that have been idle for too long, and
// returns when there may be one next.
func (p *PartitionedLimiter[R, K]) sweep(s *shard[K], now int64) (due int64) {
	due = never
	later := saturate.Add(now, saturate.Add(p.idle.Load(), 1))
	for from, more := 0, true; more; from += visitChains {
		var old, unknown []*entry[K]
		more = s.visit(from, func(e *entry[K]) {
			left, idle := p.timeLeft(e, now)
			switch {
			case e.mustAsk():
				if p.mayForget(e) {
					unknown = append(unknown, e)
				}
				due = min(due, later)
			case idle && left < 0:
				old = append(old, e)
			default:
				due = min(due, saturate.Add(now, saturate.Add(max(left, 0), 1)))
			}
		})
		for _, e := range old {
			if s.removeIdle(e, p.idle.Load(), now) {
				p.forget(e)
			} else { // used meanwhile
				due = min(due, later)
			}
		}
		lost := p.onIdle.run(len(unknown), func(i int) {
			e := unknown[i]
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

// noteDue has the shard swept at that moment or before.
func (s *shard[K]) noteDue(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepAt = min(s.sweepAt, at)
}

// timeLeft is how long a partition still may be idle; of one in use, how long at
// least. The shard is locked. Of one that has to be asked nothing is known.
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

// mayForget reports whether the limiter of e could be closed now: see closesAtMost.
func (p *PartitionedLimiter[R, K]) mayForget(e *entry[K]) bool {
	return p.onClose.running.Load() < closesAtMost || e.builtin()
}

// askAndRemove is [shard.removeIdle] for a limiter that has to be asked, which is done without a lock. It is
// still right when it is taken out if it has not been used since. left is for how long it may still be idle.
func (s *shard[K]) askAndRemove(e *entry[K], longer int64) (left int64, out bool) {
	t := e.tracked()
	if e.pins.Load() > 0 || !t.busy.CompareAndSwap(false, true) {
		return longer, false
	}
	defer t.busy.Store(false)
	uses := t.uses.Load()
	d, idle := t.idler.IdleDuration()
	switch {
	case !idle:
		return longer, false
	case int64(d) <= longer:
		return longer - int64(d), false
	}
	return longer, s.remove(e, func() bool { return t.uses.Load() == uses })
}

// removeIdle takes an entry out of its shard if nobody is using it and its limiter
// has been idle for longer than that.
func (s *shard[K]) removeIdle(e *entry[K], longer, now int64) (out bool) {
	return s.remove(e, func() bool { return e.closeIfIdle(longer, now) })
}

// remove takes an entry out of its shard if it is not in use and may reports true. The entry is not in use
// while may runs.
func (s *shard[K]) remove(e *entry[K], may func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.table.has(e) || !e.pins.CompareAndSwap(0, forgotten) {
		return false
	}
	if !may() {
		e.pins.Add(-forgotten)
		return false
	}
	s.table.remove(e)
	return true
}

// forget closes the limiter of a partition that was taken out. Whose call made room is no reason for its
// caller to see a panic of another key's limiter, or to wait for it.
func (p *PartitionedLimiter[R, K]) forget(e *entry[K]) {
	p.uncount(e)
	switch {
	case e.clocked():
		return // closeIfIdle has closed it
	case e.builtin():
		_ = closeLimiter(e.limiter()) // there is no error
		return
	}
	p.onClose.run(1, func(int) { p.janitor.failed(closeLimiter(e.limiter())) })
}

// tidy gives memory back after a sweep, and says when the next one is due.
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
