package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir/pipeline"
)

// ErrInjected is the error of a [Fault] that was given no other. It comes wrapped in
// a text that names the strategy.
var ErrInjected = errors.New("injected fault")

// FaultOptions are the options of a [Fault]. At most one of Err, Errors and ErrFunc
// can be set; with none the error is [ErrInjected].
type FaultOptions struct {
	Options `yaml:",inline"`
	// Err is the error.
	Err error `json:"-" yaml:"-"`
	// Errors are errors of which one is picked at random.
	Errors []WeightedError `json:"-" yaml:"-"`
	// ErrFunc makes the error; nil: nothing is injected.
	ErrFunc func(ctx context.Context) error `json:"-" yaml:"-"`
}

// A WeightedError is one of the errors that a [Fault] picks from.
type WeightedError struct {
	Err error // nil: nothing is injected where this one is picked
	// Weight says how often it is picked in proportion to the others; 0 is 100.
	Weight int
}

// Validate returns every problem in one error, or nil.
func (o *FaultOptions) Validate() error {
	if o == nil {
		return nil
	}
	var p problems
	p.common(&o.Options)
	sources := 0
	for _, set := range []bool{o.Err != nil, len(o.Errors) > 0, o.ErrFunc != nil} {
		if set {
			sources++
		}
	}
	if sources > 1 {
		p.add("Err, Errors and ErrFunc are set more than one at a time")
	}
	for i, e := range o.Errors {
		if e.Weight < 0 {
			p.add("Errors[%d].Weight is %d, must be at least 0", i, e.Weight)
		}
	}
	return p.err()
}

// A Fault is a strategy that fails in place of what comes after it. Make one with
// [NewFault]; the zero Fault injects nothing. It is safe for concurrent use.
type Fault struct {
	gate
	options FaultOptions
	wheel   wheel // of the Errors
}

// NewFault makes a strategy that injects errors. A nil o means the defaults: it is
// off.
func NewFault(o *FaultOptions) *Fault {
	s := new(Fault)
	if o != nil {
		s.options = *o
	}
	s.gate = newGate(s.options.Options, "Chaos.Fault", o.Validate())
	s.options.Options = s.common
	s.options.Errors = slices.Clone(s.options.Errors)
	for _, e := range s.options.Errors {
		s.wheel.add(e.Weight)
	}
	return s
}

// Options returns the options, with the defaults filled in.
func (s *Fault) Options() FaultOptions { return s.options }

// Describe says what the strategy is made of: its [FaultOptions]. It is for
// [pipeline.Pipeline.Describe].
func (s *Fault) Describe() (options, state any) { return s.options, nil }

// Execute returns an error or runs next. It implements [pipeline.Strategy].
func (s *Fault) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.opens(ctx)
	if err != nil {
		return nil, err
	}
	if !inject {
		return next.Run(ctx)
	}
	fault := s.fault(ctx, next)
	if fault == nil {
		return proceed(ctx, next)
	}
	i := Injection{Err: fault}
	s.report(ctx, next, EventFault, i)
	s.call(ctx, next, i)
	return nil, fault
}

// fault returns the error to inject, or nil.
func (s *Fault) fault(ctx context.Context, next pipeline.Next) error {
	switch o := &s.options; {
	case o.ErrFunc != nil:
		return o.ErrFunc(ctx)
	case o.Err != nil:
		return o.Err
	case len(s.wheel) > 0:
		return o.Errors[s.wheel.pick(s.random())].Err
	default:
		return fmt.Errorf("chaos: %v: %w", next.Source(), ErrInjected)
	}
}
