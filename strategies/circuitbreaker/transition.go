package circuitbreaker

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
)

// The events of this package. Rejections have none: an open circuit has plenty,
// and each is the Err of its execution.
const (
	// EventOpened: the circuit was opened, for Duration, by an execution that came
	// to Result and Err; or it was isolated, and there is none of these. Error.
	EventOpened = "OnCircuitOpened"
	// EventClosed: the circuit was closed, by a probe that came to Result and Err,
	// or by hand. Information.
	EventClosed = "OnCircuitClosed"
	// EventHalfOpened: the first probe is let through. Warning.
	EventHalfOpened = "OnCircuitHalfOpened"
)

// succeeded counts a success of a closed circuit.
func (s *Strategy) succeeded(p *phase) {
	if s.options.ConsecutiveFailures > 0 && p.consecutive.Load() != 0 {
		p.consecutive.Store(0)
	}
	if p.window != nil {
		p.window.succeeded(clock.Now())
	}
}

// failed counts a failure of a closed circuit, and opens it if that was one too many.
func (s *Strategy) failed(ctx context.Context, next pipeline.Next, p *phase, result any, err error) {
	if p.ended.Load() {
		return
	}
	now, o := clock.Now(), &s.options
	var row int64
	var sum counts
	if o.ConsecutiveFailures > 0 {
		row = p.consecutive.Add(1)
	}
	if p.window != nil {
		p.window.failed(now)
		sum = p.window.counts(now)
	}
	if p.window != nil && sum.tooMany(o) || row > 0 && row >= int64(o.ConsecutiveFailures) {
		s.open(ctx, next, p, now, &Transition{
			From: Closed, Throughput: sum.throughput, Failures: sum.failures, ConsecutiveFailures: row,
			Result: result, Err: err,
		})
	}
}

// probed takes note of what came of a probe.
func (s *Strategy) probed(ctx context.Context, next pipeline.Next, a admission, v verdict, result any, err error) {
	t := Transition{From: HalfOpen, HalfOpenAttempts: a.phase.attempts, Result: result, Err: err}
	if v == failure { // its place stays taken: nobody is to take it while the circuit opens
		s.open(ctx, next, a.phase, clock.Now(), &t)
		return
	}
	s.announce(ctx, next, s.leave(a, v, &t))
}

// leave takes the place of a probe back, and closes the circuit if enough of them
// have succeeded. It returns what that brought about.
func (s *Strategy) leave(a admission, v verdict, t *Transition) *Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.obey()
	p := a.phase
	if s.current.Load() != p {
		return news
	}
	p.probes.release(a.ticket)
	if v != success {
		return news
	}
	p.probes.succeeded++
	if p.probes.succeeded < s.options.HalfOpenProbes || !p.ended.CompareAndSwap(false, true) {
		return news
	}
	s.current.Store(newClosed(&s.options))
	t.To = Closed
	return t
}

// open ends p, unless another outcome has done so, by opening the circuit.
func (s *Strategy) open(ctx context.Context, next pipeline.Next, p *phase, now time.Duration, t *Transition) {
	if !p.ended.CompareAndSwap(false, true) {
		return
	}
	t.To, t.Source, t.BreakDuration = Open, next.Source(), s.options.BreakDuration
	// It opens also if BreakDurationFunc panics: p has ended.
	defer func() { s.announce(ctx, next, s.putOpen(p, now, t)) }()
	if s.options.BreakDurationFunc == nil {
		return
	}
	if d := s.options.BreakDurationFunc(ctx, *t); d > 0 {
		t.BreakDuration = d
	}
}

// putOpen puts the phase in force that comes after p. It returns what came of that.
func (s *Strategy) putOpen(p *phase, now time.Duration, t *Transition) *Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.obey()
	if s.current.Load() != p {
		return news // an order was faster
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

// obey carries out the last order of the Control, with the lock held. It returns
// the transition that it was, if it was any.
func (s *Strategy) obey() *Transition {
	if !s.ordered() {
		return nil
	}
	order := s.options.Control.orders.Load()
	s.obeyed.Store(order)
	t := &Transition{From: s.current.Load().state, To: Closed, Manual: true}
	if isolates(order) {
		t.To = Isolated
		s.current.Store(&phase{state: Isolated})
	} else {
		s.current.Store(newClosed(&s.options)) // also if it is closed: to close is to begin anew
	}
	if t.From == t.To {
		return nil
	}
	return t
}

// announce tells everybody who wants to know of t; nil: there is nothing to tell.
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
