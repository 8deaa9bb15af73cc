package circuitbreaker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// A phase is the time between two transitions. An execution keeps the phase that let it through, and its outcome counts in
// that phase. So the outcome of an execution from before a transition counts in a phase that has ended, and changes
// nothing.
type phase struct {
	state State
	// ended is set, once, by the outcome that ends the phase, before the next phase is in force.
	ended atomic.Bool

	// Closed:
	window      *window // nil if FailureRatio is off
	consecutive atomic.Int64

	// Open and HalfOpen:
	length   time.Duration // of the break
	until    time.Duration // the end of the break, by clock.Now
	attempts int           // see Transition.HalfOpenAttempts
	cause    error         // see OpenError.Err

	// HalfOpen, guarded by Strategy.mu:
	probes probes
}

// newClosed returns a phase of a closed circuit without counts.
func newClosed(o *Options) *phase {
	p := &phase{state: Closed}
	if o.FailureRatio != -1 {
		p.window = newWindow(o.SamplingDuration, clock.Now())
	}
	return p
}

// countSuccess counts a success of a closed circuit.
func (p *phase) countSuccess() {
	if p.consecutive.Load() != 0 {
		p.consecutive.Store(0)
	}
	if p.window != nil {
		if segment := p.window.at(clock.Now()); segment != nil {
			segment.successes.Add(1)
		}
	}
}

// rejects reports whether the phase lets no execution through at now.
func (p *phase) rejects(now time.Duration) bool {
	return p.state == Isolated || p.state == Open && now < p.until
}

// wait returns how long the break still takes, or 0 if there is none.
func (p *phase) wait(now time.Duration) time.Duration {
	if p.state != Open {
		return 0
	}
	return max(p.until-now, 0)
}

// halfOpen returns the phase after the break of p.
func (p *phase) halfOpen() *phase {
	return &phase{state: HalfOpen, length: p.length, attempts: p.attempts + 1, cause: p.cause}
}

// probes are the executions that a half-open circuit lets through.
//
// There are HalfOpenProbes places. A probe that runs has one, and a probe that has succeeded keeps it.
//
// A probe that does not return would keep the circuit half open forever. So after the length of a break its place can be
// given to another.
type probes struct {
	running   []probe // with a place, the one that began first at the front
	last      uint64  // the last ticket that start has returned
	succeeded int
}

// A probe is an execution that has a place.
type probe struct {
	ticket uint64
	began  time.Duration
}

// wait returns how long it takes until there is a place: until enough of the probes that began first lose theirs, each
// after timeout.
func (p *probes) wait(now time.Duration, places int, timeout time.Duration) time.Duration {
	switch last := p.excess(places); {
	case last < 0:
		return 0
	case last >= len(p.running):
		return timeout // the circuit is about to close
	default:
		// The caller reads the clock before it takes the lock, so now can be before the beginning of a probe.
		return max(timeout-max(now-p.running[last].began, 0), 0)
	}
}

// excess returns the index of the last of the running probes that must lose their places for another one, or -1. It is
// more than 0 if a probe has succeeded without its place.
func (p *probes) excess(places int) int { return max(p.succeeded+len(p.running)-places, -1) }

// start gives a place to one more probe and returns its ticket, which is 0 if there is no place.
func (p *probes) start(now time.Duration, places int, timeout time.Duration) (ticket uint64) {
	if p.wait(now, places, timeout) > 0 {
		return 0
	}
	p.running = slices.Delete(p.running, 0, p.excess(places)+1)
	if n := len(p.running); n > 0 {
		now = max(now, p.running[n-1].began)
	}
	p.last++
	p.running = append(p.running, probe{ticket: p.last, began: now})
	return p.last
}

// release frees the place of the probe with that ticket, if it has one.
func (p *probes) release(ticket uint64) {
	p.running = slices.DeleteFunc(p.running, func(r probe) bool { return r.ticket == ticket })
}

// segmentCount is the number of segments of a window.
const segmentCount = 10

// A window counts the outcomes of the sampling duration, in segments of a tenth of it: the present segment and the nine
// before it count. Counting takes no lock.
//
// The segment with the number n covers [began + (n-1)×width, began + n×width), and is kept at index n % segmentCount.
type window struct {
	began    time.Duration // by clock.Now
	width    time.Duration // of a segment
	mu       sync.Mutex    // held to reuse a segment
	segments [segmentCount]segment
}

// A segment counts the outcomes of one period. A goroutine gets a segment from at and then counts in it. If it is
// delayed between the two for longer than the whole window, it counts in a later period. That is accepted, because a
// lock would cost every execution.
type segment struct {
	number              atomic.Int64 // of the period; 0 if it has none
	successes, failures atomic.Int64
}

// counts are the sums of a window.
type counts struct{ throughput, failures int64 }

// newWindow makes a window of that length that begins now.
func newWindow(sampling, now time.Duration) *window {
	width := sampling / segmentCount
	if sampling%segmentCount != 0 {
		width++ // never 0
	}
	return &window{began: now, width: width}
}

// number returns the number of the segment that covers now.
func (w *window) number(now time.Duration) int64 {
	return int64(max(now-w.began, 0)/w.width) + 1
}

// at returns the segment that covers now, or nil if a later one has replaced it.
func (w *window) at(now time.Duration) *segment {
	number := w.number(now)
	s := &w.segments[number%segmentCount]
	if s.number.Load() == number {
		return s
	}
	return w.begin(s, number)
}

// begin makes s the segment of that number and returns it. If s is the segment of a later number already, it returns
// nil.
func (w *window) begin(s *segment, number int64) *segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := s.number.Load(); old == number {
		return s // another goroutine was first
	} else if old > number {
		return nil // stale reading of the clock: the segment has been reused
	}
	s.number.Store(0) // so that no other goroutine takes the old counts for new ones
	s.successes.Store(0)
	s.failures.Store(0)
	s.number.Store(number)
	return s
}

// sum returns the sums of the segments that are in the window at now.
func (w *window) sum(now time.Duration) counts {
	var sum counts
	oldest := max(w.number(now)-segmentCount+1, 1)
	for i := range w.segments {
		if s := &w.segments[i]; s.number.Load() >= oldest {
			failures := s.failures.Load()
			sum.failures += failures
			sum.throughput += failures + s.successes.Load()
		}
	}
	return sum
}

// tooMany reports whether the circuit opens with these counts. It divides because 7/100 is the same float64 as 0.07, but
// 0.07*100 is more than 7.
func (c counts) tooMany(o *Options) bool {
	return c.throughput >= int64(o.MinimumThroughput) &&
		float64(c.failures)/float64(c.throughput) >= o.FailureRatio
}
