package limiter

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/saturate"
)

const (
	// sweepEvery is the shortest time between two searches for idle partitions.
	sweepEvery = int64(100 * time.Millisecond)
	// visitPlaces is how many places housekeeping visits under one lock, which takes some ten microseconds.
	visitPlaces = 256
	// hookLogEvery is the shortest time between two lines in the log about custom limiters.
	hookLogEvery = 10 * time.Second
)

// housekeeping is when a limiter does its housekeeping, and what has gone wrong in it.
type housekeeping struct {
	due     atomic.Int64          // the moment for which the timer is set, or unknown; never while housekeeping runs
	sweepAt int64                 // no search for idle partitions before that moment
	asking  atomic.Bool           // custom limiters are being looked after
	logged  atomic.Int64          // the moment of the last line in the log; never while one is written
	closing atomic.Pointer[error] // the first error of closing a partition that was forgotten
}

// pace returns the time from one search for idle partitions to the next.
func (p *PartitionedLimiter[R, K]) pace() int64 { return max(p.idle.Load()/4, sweepEvery) }

// schedule sets the timer if there is none that fires early enough.
//
// A limiter can be used in a testing/synctest bubble and outside of it. A bubble's timer never fires once the bubble has
// ended, and stopping it from outside ends the process. So no timer is ever stopped: one that fires at another moment than
// due does nothing. In a bubble each call sets a timer, because the one that is set can be of another bubble.
func (p *PartitionedLimiter[R, K]) schedule(now int64) {
	due, at := p.due.Load(), saturate.Add(now, p.pace())
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

// housekeep is called by the timer that was set for the moment due. It forgets partitions that have been idle for long enough,
// and sets the timer again while there are partitions. Custom limiters are looked after one by one on another goroutine: if one
// does not return, that is the last of it for them.
func (p *PartitionedLimiter[R, K]) housekeep(due int64) {
	if !p.due.CompareAndSwap(due, never) {
		return
	}
	if now := moment(); now >= p.sweepAt || inBubble(now) != inBubble(p.sweepAt) {
		if custom := p.sweep(now); len(custom) > 0 && p.asking.CompareAndSwap(false, true) {
			go func() {
				defer p.asking.Store(false)
				for _, c := range custom {
					p.evict(c, p.mayIdle(c.partition), now)
				}
			}()
		}
		ended := moment()
		p.sweepAt = ended + max(p.pace(), pauseFactor*(ended-now))
	}
	p.due.Store(unknown)
	if p.count.Load() > 0 {
		p.schedule(moment())
	}
}

// sweep forgets idle partitions whose limiters run only code of this package, and returns those of other limiters.
func (p *PartitionedLimiter[R, K]) sweep(now int64) (custom []candidate[K]) {
	for i := range p.shards {
		s := &p.shards[i]
		for from, more := 0, true; more; from += visitPlaces {
			var some []candidate[K]
			some, more = s.visit(from, func(c candidate[K]) bool {
				return c.tracked == nil && c.isFull(p.mayIdle(c.partition), now, false) || c.tracked != nil && !c.tracked.pinned()
			})
			for _, c := range some {
				if c.tracked != nil && !c.tracked.builtin {
					custom = append(custom, c)
				} else {
					p.evict(c, p.mayIdle(c.partition), now)
				}
			}
		}
	}
	return custom
}

// mayIdle returns for how long a partition may be idle: for no time where a lower MaxPartitions was set.
func (p *PartitionedLimiter[R, K]) mayIdle(c partition[K]) int64 {
	if most := p.max.Load(); most > 0 && p.count.Load() > most {
		return p.minIdle(c)
	}
	return p.idle.Load()
}

// visit returns the partitions in visitPlaces places, from the given one on, of which wanted returns true, and reports
// whether there are more. If there are no more, and far too many places, it gives memory back.
func (s *shard[K]) visit(from int, wanted func(c candidate[K]) bool) (some []candidate[K], more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.table()
	for i := from; i < min(from+visitPlaces, len(places)); i++ {
		if e := places[i].entry.Load(); e != nil {
			if c := (candidate[K]{s.partition(e), s, places[i].tag.Load(), false}); wanted(c) {
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

// call calls f, which calls the method hook of a limiter. It calls a custom limiter on another goroutine and waits, so that a panic
// or Goexit ends nothing else, and not while another call of its methods has not returned.
func (p *PartitionedLimiter[R, K]) call(hook string, c candidate[K], f func()) {
	t := c.tracked
	if t == nil || t.builtin {
		f()
		return
	}
	if !t.busy.CompareAndSwap(false, true) {
		return
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		defer t.busy.Store(false)
		p.guard(hook, f)
	}()
	<-returned
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
