package circuitbreaker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/strategies/internal/judge"
	"github.com/weir-go/weir/strategies/internal/window"
)

// A phase is the time between two transitions. An execution keeps the phase that let it through, and its outcome counts in
// that phase. So the outcome of an execution from before a transition counts in a phase that has ended, and changes
// nothing.
type phase struct {
	state State

	// Closed:
	window      *window.Window // of successes and failures; nil if FailureRatio is off
	consecutive atomic.Int64

	// Open and HalfOpen:
	length   time.Duration // of the break
	until    time.Duration // the end of the break, by clock.Now
	attempts int           // see Transition.HalfOpenAttempts
	cause    error         // see OpenError.Err

	// HalfOpen, guarded by Strategy.mu. There are HalfOpenProbes places. A probe that runs has one, and a probe that has
	// succeeded keeps it.
	//
	// A probe that does not return would keep the circuit half open forever. So after the length of a break its place can
	// be given to another.
	running   []*probe // with a place, the one that began first at the front
	succeeded int
}

// A probe is an execution that a half-open circuit lets through.
type probe struct{ began time.Duration }

// The window of a phase has segments of a tenth of the sampling duration: the present one and the nine before it count.
const segments = 10

// What a window counts.
const (
	successes = iota
	failures
)

// newClosed returns a phase of a closed circuit without counts.
func newClosed(o *Options) *phase {
	p := &phase{state: Closed}
	if o.FailureRatio != -1 {
		width := o.SamplingDuration / segments
		if o.SamplingDuration%segments != 0 {
			width++ // never 0
		}
		p.window = window.New(clock.Now(), width, segments)
	}
	return p
}

// open returns the phase of an open circuit after p.
func (p *phase) open(now time.Duration, t Transition) *phase {
	return &phase{state: Open, length: t.BreakDuration, until: saturate.Add(now, t.BreakDuration), attempts: p.attempts, cause: t.Err}
}

// halfOpen returns the phase after the break of p.
func (p *phase) halfOpen() *phase {
	return &phase{state: HalfOpen, length: p.length, attempts: p.attempts + 1, cause: p.cause}
}

// countSuccess counts a success of a closed circuit.
func (p *phase) countSuccess() {
	if p.consecutive.Load() != 0 {
		p.consecutive.Store(0)
	}
	if p.window != nil {
		if segment := p.window.At(clock.Now()); segment != nil {
			segment.Counts[successes].Add(1)
		}
	}
}

// counts returns the sums of the window, which are 0 if there is none.
func (p *phase) counts(now time.Duration) (throughput, failed int64) {
	if p.window == nil {
		return 0, 0
	}
	sum := p.window.Sum(now, segments)
	return sum[successes] + sum[failures], sum[failures]
}

// rejects reports whether the phase lets no execution through at now.
func (p *phase) rejects(now time.Duration) bool {
	return p.state == Isolated || p.state == Open && now < p.until
}

// wait returns how long the break still takes or, if the circuit is half open, how long it takes until there is a place:
// until enough of the probes that began first lose theirs.
func (p *phase) wait(now time.Duration, places int) time.Duration {
	switch last := p.excess(places); {
	case p.state == Open:
		return max(p.until-now, 0)
	case p.state != HalfOpen || last < 0:
		return 0
	case last >= len(p.running):
		return p.length // the circuit is about to close
	default:
		return max(p.running[last].began+p.length-now, 0)
	}
}

// excess returns the index of the last of the running probes that must lose their places for another one, or -1. It is
// more than 0 if a probe has succeeded without its place.
func (p *phase) excess(places int) int { return max(p.succeeded+len(p.running)-places, -1) }

// start gives a place to one more probe and returns it, or nil if there is no place.
func (p *phase) start(now time.Duration, places int) *probe {
	if p.wait(now, places) > 0 {
		return nil
	}
	started := &probe{began: now}
	p.running = append(slices.Delete(p.running, 0, p.excess(places)+1), started)
	return started
}

// end frees the place of a probe that did not fail, if it has one, and returns how many have succeeded.
func (p *phase) end(ended *probe, v judge.Outcome) (succeeded int) {
	p.running = slices.DeleteFunc(p.running, func(r *probe) bool { return r == ended })
	if v == judge.Success {
		p.succeeded++
	}
	return p.succeeded
}
