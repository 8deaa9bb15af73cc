package circuitbreaker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// A phase is the time between two transitions. An execution keeps the phase that
// let it through and tells that one what came of it, so that outcomes from before
// a transition find a phase which is over and change nothing.
type phase struct {
	state State
	// ended is set by the one outcome that ends the phase, before the next phase
	// is in force.
	ended atomic.Bool

	// Closed.
	window      *window // nil: the ratio does not matter
	consecutive atomic.Int64

	// Open and HalfOpen.
	length   time.Duration // of the break
	until    time.Duration // the end of the break, on sinceStart's clock
	attempts int           // how often it was half open since it was last closed
	cause    error         // what the execution returned that opened it

	// HalfOpen, under the strategy's lock.
	probes probes
}

// newClosed returns the phase that a circuit begins with.
func newClosed(o *Options) *phase {
	p := &phase{state: Closed}
	if o.FailureRatio != -1 {
		p.window = newWindow(o.SamplingDuration, clock.Now())
	}
	return p
}

func (p *phase) counts(now time.Duration) counts {
	if p.window == nil {
		return counts{}
	}
	return p.window.counts(now)
}

// rejects tells whether the phase lets nobody through at that time.
func (p *phase) rejects(now time.Duration) bool {
	return p.state == Isolated || p.state == Open && now < p.until
}

// wait returns how long the break still takes, 0 if there is none.
func (p *phase) wait(now time.Duration) time.Duration {
	if p.state != Open {
		return 0
	}
	return max(p.until-now, 0)
}

// halfOpen returns the phase after the break.
func (p *phase) halfOpen() *phase {
	return &phase{state: HalfOpen, length: p.length, attempts: p.attempts + 1, cause: p.cause}
}

// probes are the executions that a half-open circuit lets through.
type probes struct {
	running   []probe // those that have a place, the longest running first
	last      uint64  // the last ticket
	succeeded int
}

type probe struct {
	ticket uint64
	since  time.Duration
}

// admit gives a place to one more probe, of as many as still have to succeed. If
// there is none left it takes that of the longest running one, provided that has
// had it for as long as a break; else it says when that will be.
func (p *probes) admit(now time.Duration, places int, patience time.Duration) (ticket uint64, wait time.Duration) {
	for p.succeeded+len(p.running) >= places {
		if len(p.running) == 0 {
			return 0, patience // just about to close
		}
		// The clock was read before the lock was taken: it may be behind.
		if had := max(now-p.running[0].since, 0); had < patience {
			return 0, patience - had
		}
		p.running = slices.Delete(p.running, 0, 1)
	}
	if n := len(p.running); n > 0 {
		now = max(now, p.running[n-1].since)
	}
	p.last++
	p.running = append(p.running, probe{ticket: p.last, since: now})
	return p.last, 0
}

// release takes a probe's place back, if it has one.
func (p *probes) release(ticket uint64) {
	p.running = slices.DeleteFunc(p.running, func(r probe) bool { return r.ticket == ticket })
}
