package circuitbreaker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
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

// A Strategy is a circuit breaker. Make one with [New]. It is safe for concurrent use, and can be part of several
// pipelines, which then share the circuit.
type Strategy struct {
	options Options
	control *Control // that of the options, or own
	own     Control

	current atomic.Pointer[phase] // the phase in force; written with mu held
	applied atomic.Uint64         // the version of the Control that was carried out; written with mu held

	mu sync.Mutex // never held while a function of the program runs
}

// New makes a circuit breaker. Its circuit is closed, or isolated if [Options.Control] is isolated. If o is nil,
// the defaults apply. If o is invalid, making a pipeline of the strategy fails.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults()}
	if s.control = s.options.Control; s.control == nil {
		s.control = &s.own
	}
	s.applied.Store(s.control.version.Load() &^ 1) // an Isolate is still to be carried out
	s.current.Store(newClosed(&s.options))
	return s
}

// Name returns [Options.Name], or "CircuitBreaker".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in. A strategy that [New] makes with them is equal to s.
func (s *Strategy) Options() Options { return s.options }

// Control returns what opens and closes the circuit by hand: [Options.Control] or, if that is nil, a Control that only this
// circuit has.
func (s *Strategy) Control() *Control { return s.control }

// Describe returns the [Options] and the [Statistics]. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) { return s.Options(), s.Statistics() }

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error {
	var p validate.Problems
	if s.current.Load() == nil {
		p.Add("", nil, "must be made with New")
		return p.Err("circuitbreaker")
	}
	return s.options.Validate()
}

// Execute runs next if the circuit lets it through, and counts the outcome. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // not counted, because the deadline has passed before the call
		return nil, ctxerr.NotBegun(ctx)
	}
	if p := s.current.Load(); p.state == Closed && !s.controlChanged() {
		return s.run(ctx, next, admission{phase: p}) // most executions go this way
	}
	a := s.admit()
	if a.admitted {
		return s.run(ctx, next, a)
	}
	s.announce(ctx, next, a.pending)
	return nil, &OpenError{
		State: a.phase.state, Source: next.Source(), Err: a.phase.cause, retryAfter: a.wait, retryable: s.options.RetryRejections,
	}
}

// controlChanged reports whether there is a call of the Control to carry out.
func (s *Strategy) controlChanged() bool { return s.control.version.Load() != s.applied.Load() }

// An admission is the answer of a circuit to an execution that asks to be let through.
type admission struct {
	phase    *phase
	admitted bool
	probe    *probe        // nil if it is not one
	wait     time.Duration // if not admitted, until the next attempt; 0 if not known
	pending  *Transition   // to announce, or nil
}

// admit decides whether the circuit lets an execution through.
func (s *Strategy) admit() admission {
	now := clock.Now()
	if p := s.current.Load(); p.rejects(now) && !s.controlChanged() {
		return admission{phase: p, wait: p.wait(now, 0)} // without the lock, because an open circuit rejects many executions
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now = clock.Now() // after the lock, so that the probes begin in order
	a := admission{pending: s.applyControl()}
	p := s.current.Load()
	if p.state == Open && !p.rejects(now) {
		p = p.halfOpen()
		s.current.Store(p)
		a.pending = &Transition{From: Open, To: HalfOpen, HalfOpenAttempts: p.attempts}
	}
	a.phase = p
	switch p.state {
	case Closed:
		a.admitted = true
	case HalfOpen:
		a.probe = p.start(now, s.options.HalfOpenProbes)
		a.admitted = a.probe != nil
	default:
		a.wait = p.wait(now, 0)
	}
	return a
}

// run runs an execution that the circuit let through, and counts its outcome. The place of a probe is freed even if a
// function of the options panics.
func (s *Strategy) run(ctx context.Context, next pipeline.Next, a admission) (result any, err error) {
	v, outcome := judge.Ignored, error(nil)
	defer func() {
		switch {
		case a.probe != nil:
			s.countProbe(ctx, next, a, v, result, outcome)
		case v == judge.Success:
			a.phase.countSuccess()
		case v == judge.Failure:
			s.countFailure(ctx, next, a.phase, result, outcome)
		}
	}()
	s.announce(ctx, next, a.pending)
	v, outcome = judge.Failure, pipeline.ErrAborted // stays if next or Handle panics or calls Goexit
	result, err = next.Run(ctx)
	v = judge.Counts(ctx, s.options.Handle, result, err)
	outcome = err
	return result, err
}

// State returns [Statistics.State].
func (s *Strategy) State() State { return s.Statistics().State }

// CircuitState returns the text form of State. Telemetry reads it from the circuits of a registry.
func (s *Strategy) CircuitState() string { return s.State().String() }

// Statistics returns the present figures.
func (s *Strategy) Statistics() Statistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controlChanged() { // the counts of the phase no longer apply
		if s.control.Isolated() {
			return Statistics{State: Isolated}
		}
		return Statistics{State: Closed}
	}
	p, now := s.current.Load(), clock.Now()
	stats := Statistics{
		State: p.state, ConsecutiveFailures: p.consecutive.Load(), Probes: len(p.running),
		RetryAfter: p.wait(now, s.options.HalfOpenProbes),
	}
	stats.Throughput, stats.Failures = p.counts(now)
	if p.state == Open && stats.RetryAfter == 0 {
		stats.State = HalfOpen
	}
	return stats
}

// countFailure counts a failure of a closed circuit, and opens the circuit if one of the rules in the Options says
// so.
func (s *Strategy) countFailure(ctx context.Context, next pipeline.Next, p *phase, result any, err error) {
	now, o := clock.Now(), &s.options
	t := Transition{From: Closed, Result: result, Err: err}
	if o.ConsecutiveFailures > 0 {
		t.ConsecutiveFailures = p.consecutive.Add(1)
	}
	if p.window != nil {
		if segment := p.window.At(now); segment != nil {
			segment.Counts[failures].Add(1)
		}
		t.Throughput, t.Failures = p.counts(now)
	}
	if t.isTooMuch(o) {
		s.open(ctx, next, p, now, t)
	}
}

// isTooMuch reports whether the circuit opens with the counts of t. It divides because 7/100 is the same float64 as 0.07,
// but 0.07*100 is more than 7.
func (t Transition) isTooMuch(o *Options) bool {
	if o.ConsecutiveFailures > 0 && t.ConsecutiveFailures >= int64(o.ConsecutiveFailures) {
		return true
	}
	return o.FailureRatio != -1 && t.Throughput >= int64(o.MinimumThroughput) &&
		float64(t.Failures)/float64(t.Throughput) >= o.FailureRatio
}

// countProbe counts the outcome of a probe.
func (s *Strategy) countProbe(ctx context.Context, next pipeline.Next, a admission, v judge.Outcome, result any, err error) {
	t := Transition{From: HalfOpen, HalfOpenAttempts: a.phase.attempts, Result: result, Err: err}
	if v == judge.Failure {
		s.open(ctx, next, a.phase, clock.Now(), t)
		return
	}
	s.mu.Lock()
	pending := s.applyControl()
	if s.current.Load() == a.phase && a.phase.end(a.probe, v) >= s.options.HalfOpenProbes {
		s.current.Store(newClosed(&s.options))
		t.To, pending = Closed, &t
	}
	s.mu.Unlock()
	s.announce(ctx, next, pending)
}

// open opens the circuit, unless another transition has ended p.
func (s *Strategy) open(ctx context.Context, next pipeline.Next, p *phase, now time.Duration, t Transition) {
	t.To, t.Source, t.BreakDuration = Open, next.Source(), s.options.BreakDuration
	opened := p.open(now, t)
	ok, pending := s.replace(p, opened)
	s.announce(ctx, next, pending)
	if !ok {
		return
	}
	defer s.announce(ctx, next, &t) // also if BreakDurationFunc panics
	if s.options.BreakDurationFunc == nil {
		return
	}
	if d := s.options.BreakDurationFunc(ctx, t); d > 0 {
		t.BreakDuration = d
		_, pending = s.replace(opened, p.open(now, t))
		s.announce(ctx, next, pending)
	}
}

// replace puts the phase to in force in the place of from, and reports whether from was still in force. If a call of the
// Control came first, it returns the transition to announce.
func (s *Strategy) replace(from, to *phase) (ok bool, pending *Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = s.applyControl()
	if ok = s.current.Load() == from; ok {
		s.current.Store(to)
	}
	return ok, pending
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
