package circuitbreaker

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
)

// The events of this package. A rejection is not an event: an open circuit rejects many executions, and each of them
// returns the rejection as its error.
const (
	// EventOpened means that the circuit was opened for Duration, by an execution with that Result and Err. If the
	// circuit was isolated, these three are zero. Its severity is Error.
	EventOpened = "OnCircuitOpened"
	// EventClosed means that the circuit was closed, by a probe with that Result and Err, or by hand. Its severity is
	// Information.
	EventClosed = "OnCircuitClosed"
	// EventHalfOpened means that the first probe is about to run. Its severity is Warning.
	EventHalfOpened = "OnCircuitHalfOpened"
)

// countSuccess counts a success of a closed circuit.
func (s *Strategy) countSuccess(p *phase) {
	if s.options.ConsecutiveFailures > 0 && p.consecutive.Load() != 0 {
		p.consecutive.Store(0)
	}
	if p.window != nil {
		if segment := p.window.at(clock.Now()); segment != nil {
			segment.successes.Add(1)
		}
	}
}

// countFailure counts a failure of a closed circuit, and opens the circuit if one of the rules in the Options says
// so.
func (s *Strategy) countFailure(ctx context.Context, next pipeline.Next, p *phase, result any, err error) {
	if p.ended.Load() {
		return
	}
	now, o := clock.Now(), &s.options
	var inARow int64
	var sum counts
	if o.ConsecutiveFailures > 0 {
		inARow = p.consecutive.Add(1)
	}
	if p.window != nil {
		if segment := p.window.at(now); segment != nil {
			segment.failures.Add(1)
		}
		sum = p.window.sum(now)
	}
	if p.window != nil && sum.tooMany(o) || inARow > 0 && inARow >= int64(o.ConsecutiveFailures) {
		s.open(ctx, next, p, now, &Transition{
			From: Closed, Throughput: sum.throughput, Failures: sum.failures, ConsecutiveFailures: inARow,
			Result: result, Err: err,
		})
	}
}

// countProbe counts the outcome of a probe.
func (s *Strategy) countProbe(ctx context.Context, next pipeline.Next, a admission, v verdict, result any, err error) {
	t := Transition{From: HalfOpen, HalfOpenAttempts: a.phase.attempts, Result: result, Err: err}
	if v == failure { // the probe keeps its place, so that no other begins while the circuit opens
		s.open(ctx, next, a.phase, clock.Now(), &t)
		return
	}
	s.announce(ctx, next, s.endProbe(a, v, &t))
}

// endProbe frees the place of a probe that did not fail, and closes the circuit if enough have succeeded. It returns the
// transition to announce, or nil.
func (s *Strategy) endProbe(a admission, v verdict, t *Transition) *Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.applyControl()
	p := a.phase
	if s.current.Load() != p {
		return pending
	}
	p.probes.release(a.ticket)
	if v != success {
		return pending
	}
	p.probes.succeeded++
	if p.probes.succeeded < s.options.HalfOpenProbes || !p.ended.CompareAndSwap(false, true) {
		return pending
	}
	s.current.Store(newClosed(&s.options))
	t.To = Closed
	return t
}

// open opens the circuit, unless another outcome has ended p.
func (s *Strategy) open(ctx context.Context, next pipeline.Next, p *phase, now time.Duration, t *Transition) {
	if !p.ended.CompareAndSwap(false, true) {
		return
	}
	t.To, t.Source, t.BreakDuration = Open, next.Source(), s.options.BreakDuration
	// The circuit opens even if BreakDurationFunc panics, because p has ended.
	defer func() { s.announce(ctx, next, s.replaceByOpen(p, now, t)) }()
	if s.options.BreakDurationFunc == nil {
		return
	}
	if d := s.options.BreakDurationFunc(ctx, *t); d > 0 {
		t.BreakDuration = d
	}
}

// replaceByOpen replaces p by an open phase. It returns the transition to announce, or nil.
func (s *Strategy) replaceByOpen(p *phase, now time.Duration, t *Transition) *Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.applyControl()
	if s.current.Load() != p {
		return pending // the Control came first
	}
	s.current.Store(&phase{
		state:    Open,
		length:   t.BreakDuration,
		until:    saturate.Add(now, t.BreakDuration),
		attempts: p.attempts,
		cause:    t.Err,
	})
	return t
}

// applyControl carries out the last call of the Control, if it has changed. It returns the transition to announce, or nil.
// The caller holds s.mu.
func (s *Strategy) applyControl() *Transition {
	if !s.controlChanged() {
		return nil
	}
	version := s.control.version.Load()
	s.applied.Store(version)
	t := &Transition{From: s.current.Load().state, To: Closed, Manual: true}
	if isolated(version) {
		t.To = Isolated
		s.current.Store(&phase{state: Isolated})
	} else {
		s.current.Store(newClosed(&s.options)) // also if it is closed: the counts are reset
	}
	if t.From == t.To {
		return nil
	}
	return t
}

// announce reports t and calls the function of the options for it. If t is nil, it does nothing.
func (s *Strategy) announce(ctx context.Context, next pipeline.Next, t *Transition) {
	if t == nil {
		return
	}
	t.Source = next.Source()
	e := pipeline.Event{Name: EventOpened, Severity: pipeline.SeverityError, Result: t.Result, Err: t.Err, Duration: t.BreakDuration}
	call := s.options.OnOpened
	switch t.To {
	case Closed:
		e.Name, e.Severity, call = EventClosed, pipeline.SeverityInformation, s.options.OnClosed
	case HalfOpen:
		e.Name, e.Severity, call = EventHalfOpened, pipeline.SeverityWarning, s.options.OnHalfOpened
	}
	next.Report(ctx, e)
	if call != nil {
		call(ctx, *t)
	}
}
