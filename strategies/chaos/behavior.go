package chaos

import (
	"context"

	"github.com/weir-go/weir/pipeline"
)

// BehaviorOptions are the options of a [Behavior].
type BehaviorOptions struct {
	Options `yaml:",inline"`
	// Behavior is what is done: a cache is emptied, a connection closed. It must be
	// set. If it returns an error that is the outcome, and the callback does not run.
	Behavior func(ctx context.Context) error `json:"-" yaml:"-"`
}

// Validate returns every problem in one error, or nil.
func (o *BehaviorOptions) Validate() error {
	if o == nil {
		o = new(BehaviorOptions)
	}
	var p problems
	p.common(&o.Options)
	if o.Behavior == nil {
		p.add("Behavior is missing, must be set")
	}
	return p.err()
}

// A Behavior is a strategy that does something before it runs what comes after it.
// Make one with [NewBehavior]; the zero Behavior does nothing. It is safe for
// concurrent use if its function is.
type Behavior struct {
	gate
	options BehaviorOptions
}

// NewBehavior makes a strategy that injects a behaviour. Without one, making a
// pipeline of it fails.
func NewBehavior(o *BehaviorOptions) *Behavior {
	s := new(Behavior)
	if o != nil {
		s.options = *o
	}
	s.gate = newGate(s.options.Options, "Chaos.Behavior", o.Validate())
	s.options.Options = s.common
	return s
}

// Options returns the options, with the defaults filled in.
func (s *Behavior) Options() BehaviorOptions { return s.options }

// Describe says what the strategy is made of: its [BehaviorOptions]. It is for
// [pipeline.Pipeline.Describe].
func (s *Behavior) Describe() (options, state any) { return s.options, nil }

// Execute runs next, after the behaviour. It implements [pipeline.Strategy].
func (s *Behavior) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.opens(ctx)
	if err != nil {
		return nil, err
	}
	if !inject {
		return next.Run(ctx)
	}
	i := Injection{Err: s.options.Behavior(ctx)}
	s.report(ctx, next, EventBehavior, i)
	s.call(ctx, next, i)
	if i.Err != nil {
		return nil, i.Err
	}
	return proceed(ctx, next)
}
