package limiter

import (
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/saturate"
)

const (
	// replenishEvery is how often TryReplenish is called, and the shortest time between two searches for idle
	// partitions.
	replenishEvery = int64(100 * time.Millisecond)
	// visitPlaces is how many places housekeeping visits under one lock, which takes some ten microseconds.
	visitPlaces = 256
	// askTogether is how many custom limiters housekeeping asks at once.
	askTogether = 1000
	// hookTimeout is how long housekeeping waits for them before it goes on without them.
	hookTimeout = 100 * time.Millisecond
	// hookLogEvery is the shortest time between two lines in the log about custom limiters.
	hookLogEvery = 10 * time.Second
)

// housekeeping is when a limiter does its housekeeping, and what has gone wrong in it.
type housekeeping struct {
	due     atomic.Int64          // the moment for which the timer is set, or unknown; never while housekeeping runs
	sweepAt int64                 // no search for idle partitions before that moment
	logged  atomic.Int64          // the moment of the last line in the log; never while one is written
	closing atomic.Pointer[error] // the first error of closing a partition that was forgotten
}

// pace returns the time from one search for idle partitions to the next.
func (p *PartitionedLimiter[R, K]) pace() int64 { return max(p.idle.Load()/4, replenishEvery) }

// schedule sets the timer if there is none that fires early enough.
//
// A limiter can be used in a testing/synctest bubble and outside of it. A bubble's timer never fires once the bubble has
// ended, and stopping it from outside ends the process. So no timer is ever stopped: one that fires at another moment than
// due does nothing. In a bubble each call sets a timer, because the one that is set can be of another bubble.
func (p *PartitionedLimiter[R, K]) schedule(now int64) {
	due, at := p.due.Load(), saturate.Add(now, p.pace())
	if p.manual.Load() > 0 {
		at = now + replenishEvery
	}
	if due == never || p.closed.Load() {
		return
	}
	if now <= due && due <= at {
		if !inBubble(now) {
			return
		}
		at = due
	}
	if p.due.CompareAndSwap(due, at) {
		time.AfterFunc(until(at, moment()), func() { p.housekeep(at) })
	}
}

// housekeep is called by the timer that was set for the moment due. It replenishes the limiters that need it, forgets
// partitions that have been idle for long enough, and sets the timer again while there are partitions.
func (p *PartitionedLimiter[R, K]) housekeep(due int64) {
	if !p.due.CompareAndSwap(due, never) {
		return
	}
	now := moment()
	if p.manual.Load() > 0 {
		p.replenish()
	}
	if now >= p.sweepAt || inBubble(now) != inBubble(p.sweepAt) {
		p.sweep(now)
		ended := moment()
		p.sweepAt = ended + max(p.pace(), pauseFactor*(ended-now))
	}
	p.due.Store(unknown)
	if p.count.Load() > 0 {
		p.schedule(moment())
	}
}

// replenish calls TryReplenish of the limiters that need it, with no lock held.
func (p *PartitionedLimiter[R, K]) replenish() {
	p.visitAll("limiter: TryReplenish", func(c candidate[K]) bool { return c.manual() }, func(c candidate[K]) {
		c.tracked.Limiter.(replenisher).TryReplenish()
	})
}

// sweep forgets the partitions that have been idle for too long or, where a lower MaxPartitions was set, for any time.
func (p *PartitionedLimiter[R, K]) sweep(now int64) {
	longest := func(c partition[K]) int64 {
		if most := p.max.Load(); most > 0 && p.count.Load() > most {
			return p.minIdle(c)
		}
		return p.idle.Load()
	}
	p.visitAll("limiter: IdleDuration", func(c candidate[K]) bool {
		return c.tracked == nil && c.isFull(longest(c.partition), now, false) || c.tracked != nil && !c.tracked.pinned()
	}, func(c candidate[K]) {
		p.forget(c, longest(c.partition), now)
	})
}

// visitAll calls f, with no lock held, for the partitions of which wanted returns true with the shard's lock held. f calls
// the method hook of custom limiters.
func (p *PartitionedLimiter[R, K]) visitAll(hook string, wanted func(c candidate[K]) bool, f func(c candidate[K])) {
	var custom []candidate[K]
	for i := range p.shards {
		s := &p.shards[i]
		for from, more := 0, true; more; from += visitPlaces {
			var some []candidate[K]
			some, more = s.visit(from, wanted)
			for _, c := range some {
				if c.tracked != nil && !c.tracked.builtin {
					custom = append(custom, c)
				} else {
					f(c)
				}
			}
		}
	}
	p.askCustom(hook, custom, f)
}

// visit returns the partitions in visitPlaces places, from the given one on, of which wanted returns true, and reports
// whether there are more. If there are no more, and far too many places, it gives memory back.
func (s *shard[K]) visit(from int, wanted func(c candidate[K]) bool) (some []candidate[K], more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.table()
	for i := from; i < min(from+visitPlaces, len(places)); i++ {
		if e := places[i].entry.Load(); e != nil {
			if c := (candidate[K]{s.partition(e), s, uint64(places[i].tag.Load()), false}); wanted(c) {
				some = append(some, c)
			}
		}
	}
	if from+visitPlaces < len(places) {
		return some, true
	}
	s.shrink()
	return some, false
}

// askCustom calls f, which calls the method hook of a custom limiter, for each of all, on goroutines of their own. It returns
// when they have returned, but does not wait for longer than hookTimeout for any askTogether of them. A limiter whose
// method has not returned is not asked again until then.
func (p *PartitionedLimiter[R, K]) askCustom(hook string, all []candidate[K], f func(c candidate[K])) {
	for some := range slices.Chunk(all, askTogether) {
		returned := make(chan struct{}, len(some))
		for _, c := range some {
			go func() {
				defer func() { returned <- struct{}{} }()
				if t := c.tracked; t.busy.CompareAndSwap(false, true) {
					defer t.busy.Store(false)
					p.guard(hook, func() { f(c) })
				}
			}()
		}
		timeout := time.NewTimer(hookTimeout)
		for waiting := len(some); waiting > 0; waiting-- {
			select {
			case <-returned:
			case <-timeout.C:
				waiting = 0
				go p.log(func() { recovered.Overdue(hook, hookTimeout) })
			}
		}
		timeout.Stop()
	}
}

// guard calls f. If f panics, guard recovers and logs it.
func (p *PartitionedLimiter[R, K]) guard(hook string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			p.log(func() { recovered.Report(hook, v, stack) })
		}
	}()
	f()
}

// log calls write, unless a line is being written or was written less than hookLogEvery before. A moment of another clock,
// such as that of a testing/synctest bubble, does not count.
func (p *PartitionedLimiter[R, K]) log(write func()) {
	now, last := moment(), p.logged.Load()
	recently := inBubble(now) == inBubble(last) && now < last+int64(hookLogEvery)
	if last == never || recently || !p.logged.CompareAndSwap(last, never) {
		return
	}
	defer func() { p.logged.Store(moment()) }()
	write()
}

// noteError keeps the first error of a limiter's Close, for Close of p.
func (p *PartitionedLimiter[R, K]) noteError(err error) {
	if err != nil {
		p.closing.CompareAndSwap(nil, &err)
	}
}
