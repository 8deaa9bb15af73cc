package circuitbreaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// A Strategy is a circuit breaker. Make one with [New]. It is safe for concurrent
// use, and may be part of several pipelines, which then share the circuit.
//
// The engine is our own. That of failsafe-go, which other strategies are built on,
// cannot give a probe's permit back without counting a success or a failure, so
// that a cancelled probe must decide something; it never gives away the place of a
// probe that does not return; it counts outcomes from before a transition as those
// of probes; it knows either a ratio or a row of failures, and rounds the ratio to
// hundredths; and its windows, which would do, are internal.
type Strategy struct {
	options Options
	problem error

	// current is the phase in force. It is replaced with the lock held.
	current atomic.Pointer[phase]
	// obeyed is the last order of the Control that was carried out. It is written
	// with the lock held.
	obeyed atomic.Uint64

	mu sync.Mutex // never held while a function of the user's runs
}

// New makes a circuit breaker, closed unless its Control says otherwise. A nil o
// means the defaults.
func New(o *Options) *Strategy {
	s := &Strategy{options: o.withDefaults(), problem: o.Validate()}
	if c := s.options.Control; c != nil {
		s.obeyed.Store(c.orders.Load() &^ 1) // to be isolated is an order still to be carried out
	}
	s.current.Store(newClosed(&s.options))
	return s
}

// Name returns [Options.Name], or "CircuitBreaker".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in: New makes the same of
// them again.
func (s *Strategy) Options() Options { return s.options }

// Describe says what the strategy is made of, its [Options], and how it is just
// now, its [Statistics]. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) { return s.Options(), s.Statistics() }

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error {
	if s.current.Load() == nil {
		return errors.New("circuitbreaker: the strategy was made without New")
	}
	return s.problem
}

// Execute runs next if the circuit lets it through, and takes note of what came of
// it. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // its deadline says nothing about what is called
		return nil, pipeline.ContextError(ctx)
	}
	if p := s.current.Load(); p.state == Closed && !s.ordered() {
		return s.run(ctx, next, p) // the way that most executions go, kept short
	}
	return s.executeGuarded(ctx, next)
}

// ordered tells whether there is an order of the Control to carry out.
func (s *Strategy) ordered() bool {
	c := s.options.Control
	return c != nil && c.orders.Load() != s.obeyed.Load()
}

// executeGuarded is Execute where the circuit may not let it through.
func (s *Strategy) executeGuarded(ctx context.Context, next pipeline.Next) (any, error) {
	a := s.admit()
	if a.ticket != 0 {
		return s.probe(ctx, next, a)
	}
	s.announce(ctx, next, a.news)
	if a.admitted {
		return s.run(ctx, next, a.phase)
	}
	return nil, &OpenError{RetryAfter: a.wait, State: a.phase.state, Source: next.Source(), Err: a.phase.cause}
}

// An admission is what a circuit answers to an execution.
type admission struct {
	phase    *phase
	admitted bool
	ticket   uint64        // of a probe; 0: it is none
	wait     time.Duration // if it was not admitted; 0: nobody knows
	news     *Transition   // what it brought about, for announce
}

// admit asks the circuit to let an execution through.
func (s *Strategy) admit() admission {
	now := clock.Now()
	if p := s.current.Load(); p.rejects(now) && !s.ordered() {
		return admission{phase: p, wait: p.wait(now)} // under load: without the lock
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := admission{news: s.obey()}
	p := s.current.Load()
	if p.state == Open && !p.rejects(now) {
		p = p.halfOpen()
		s.current.Store(p)
		a.news = &Transition{From: Open, To: HalfOpen, HalfOpenAttempts: p.attempts}
	}
	a.phase = p
	switch p.state {
	case Closed:
		a.admitted = true
	case Open, Isolated:
		a.wait = p.wait(now)
	case HalfOpen:
		a.ticket, a.wait = p.probes.admit(now, s.options.HalfOpenProbes, p.length)
		a.admitted = a.ticket != 0
	}
	return a
}

// run lets an execution through a closed circuit.
func (s *Strategy) run(ctx context.Context, next pipeline.Next, p *phase) (result any, err error) {
	returned := false
	defer func() {
		if !returned { // it panics, or leaves the goroutine
			s.failed(ctx, next, p, nil, pipeline.ErrAborted)
		}
	}()
	result, err = next.Run(ctx)
	v := s.judge(ctx, result, err)
	returned = true
	switch v {
	case success:
		s.succeeded(p)
	case failure:
		s.failed(ctx, next, p, result, err)
	}
	return result, err
}

// probe lets an execution through a half-open circuit. Whatever happens, its place
// does not stay taken.
func (s *Strategy) probe(ctx context.Context, next pipeline.Next, a admission) (result any, err error) {
	v, outcome := neither, error(nil)
	defer func() { s.probed(ctx, next, a, v, result, outcome) }()
	s.announce(ctx, next, a.news)
	v, outcome = failure, pipeline.ErrAborted // until it has returned
	result, err = next.Run(ctx)
	v = s.judge(ctx, result, err)
	outcome = err
	return result, err
}

// A verdict is what an outcome says about what is called.
type verdict uint8

const (
	neither verdict = iota // nothing, it did not come to an end
	success
	failure
)

func (s *Strategy) judge(ctx context.Context, result any, err error) verdict {
	handle := s.options.Handle
	if handle != nil && handle(result, err) {
		return failure
	}
	if err == nil {
		return success
	}
	switch {
	case judge.NotCalled(err), errors.Is(ctx.Err(), context.Canceled):
		return neither // also where the error of a cancelled call does not say that it was cancelled
	case judge.Ended(ctx, err):
		if handle == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return failure // there was time left when the call began
		}
		return neither
	case handle != nil:
		return success
	default:
		return failure
	}
}
