package circuitbreaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
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
	return s.executeGuarded(ctx, next)
}

// controlChanged reports whether there is a call of the Control to carry out.
func (s *Strategy) controlChanged() bool { return s.control.version.Load() != s.applied.Load() }

// executeGuarded is Execute if the circuit is not closed or the Control has changed.
func (s *Strategy) executeGuarded(ctx context.Context, next pipeline.Next) (any, error) {
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
	v := s.judge(ctx, result, err)
	returned = true
	switch v {
	case success:
		s.countSuccess(p)
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
	v = s.judge(ctx, result, err)
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
func (s *Strategy) judge(ctx context.Context, result any, err error) verdict {
	handle := s.options.Handle
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
