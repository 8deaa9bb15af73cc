package circuitbreaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
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
	problem error    // what Validate returns
	control *Control // that of the options, or own
	own     Control

	current atomic.Pointer[phase] // the phase in force; written with mu held
	applied atomic.Uint64         // the version of the Control that was carried out; written with mu held

	mu sync.Mutex // never held while a function of the program runs
}

// New makes a circuit breaker. Its circuit is closed, or isolated if [Options.Control] is isolated. If o is nil,
// the defaults apply. If o is invalid, making a pipeline of the strategy fails.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
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
	return s.problem
}

// Execute runs next if the circuit lets it through, and counts the outcome. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // not counted, because the deadline has passed before the call
		return nil, pipeline.ContextError(ctx)
	}
	if p := s.current.Load(); p.state == Closed && !s.controlChanged() {
		return s.runClosed(ctx, next, p) // most executions go this way
	}
	a := s.admit()
	if a.ticket != 0 {
		return s.runProbe(ctx, next, a)
	}
	s.announce(ctx, next, a.pending)
	if a.admitted {
		return s.runClosed(ctx, next, a.phase)
	}
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
	ticket   uint64        // of a probe; 0 if it is not one
	wait     time.Duration // if not admitted, until the next attempt; 0 if not known
	pending  *Transition   // to announce, or nil
}

// admit decides whether the circuit lets an execution through.
func (s *Strategy) admit() admission {
	now := clock.Now()
	if p := s.current.Load(); p.rejects(now) && !s.controlChanged() {
		return admission{phase: p, wait: p.wait(now)} // without the lock, because an open circuit rejects many executions
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
	case Open, Isolated:
		a.wait = p.wait(now)
	case HalfOpen:
		a.ticket = p.probes.start(now, s.options.HalfOpenProbes, p.length)
		a.admitted = a.ticket != 0
	}
	return a
}

// runClosed runs an execution that a closed circuit let through.
func (s *Strategy) runClosed(ctx context.Context, next pipeline.Next, p *phase) (result any, err error) {
	returned := false
	defer func() {
		if !returned { // a panic or Goexit
			s.countFailure(ctx, next, p, nil, pipeline.ErrAborted)
		}
	}()
	result, err = next.Run(ctx)
	v := s.options.judge(ctx, result, err)
	returned = true
	switch v {
	case success:
		p.countSuccess()
	case failure:
		s.countFailure(ctx, next, p, result, err)
	}
	return result, err
}

// runProbe runs a probe of a half-open circuit. Its place is freed even if it panics.
func (s *Strategy) runProbe(ctx context.Context, next pipeline.Next, a admission) (result any, err error) {
	v, outcome := neither, error(nil)
	defer func() { s.countProbe(ctx, next, a, v, result, outcome) }()
	s.announce(ctx, next, a.pending)
	v, outcome = failure, pipeline.ErrAborted // stays if next panics or calls Goexit
	result, err = next.Run(ctx)
	v = s.options.judge(ctx, result, err)
	outcome = err
	return result, err
}

// A verdict says how an outcome counts.
type verdict uint8

const (
	neither verdict = iota // it does not count
	success
	failure
)

// judge returns how an outcome counts, by the rules in the package comment.
func (o *Options) judge(ctx context.Context, result any, err error) verdict {
	handle := o.Handle
	if handle != nil && handle(result, err) {
		return failure
	}
	if err == nil {
		return success
	}
	switch {
	case pipeline.NotCalled(err), errors.Is(ctx.Err(), context.Canceled):
		return neither // the error of a cancelled call need not match context.Canceled
	case judge.Ended(ctx, err):
		if handle == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return failure // the deadline has passed during the call
		}
		return neither
	case handle != nil:
		return success
	default:
		return failure
	}
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
	p := s.current.Load()
	stats := Statistics{State: p.state}
	switch p.state {
	case Closed:
		if p.window != nil {
			sum := p.window.sum(clock.Now())
			stats.Throughput, stats.Failures = sum.throughput, sum.failures
		}
		stats.ConsecutiveFailures = p.consecutive.Load()
	case Open:
		if stats.RetryAfter = p.wait(clock.Now()); stats.RetryAfter == 0 {
			stats.State = HalfOpen
		}
	case HalfOpen:
		stats.Probes = len(p.probes.running)
		stats.RetryAfter = p.probes.wait(clock.Now(), s.options.HalfOpenProbes, p.length)
	}
	return stats
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
