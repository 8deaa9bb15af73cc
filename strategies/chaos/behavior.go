package chaos

import (
	"context"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// BehaviorOptions are the options of a [Behavior].
type BehaviorOptions struct {
	Options `yaml:",inline"`
	// Behavior does the harm, such as emptying a cache or closing a connection. It must be set. If it returns an error,
	// the callback does not run, and the error is the outcome.
	Behavior func(ctx context.Context) error `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *BehaviorOptions) Validate() error {
	if o == nil {
		o = new(BehaviorOptions)
	}
	var p validate.Problems
	o.Options.validate(&p)
	if o.Behavior == nil {
		p.Add("Behavior", nil, "must be set")
	}
	return p.Err("chaos")
}

// A Behavior is a strategy that calls a function before it runs what comes after it. Make one with [NewBehavior]. The
// zero Behavior calls none. It is safe for concurrent use if the function is.
type Behavior struct {
	gate
	options BehaviorOptions
}

// NewBehavior makes a strategy that injects a behavior. If o is invalid, making a pipeline of the strategy fails.
func NewBehavior(o *BehaviorOptions) *Behavior {
	s := new(Behavior)
	if o != nil {
		s.options = *o
	}
	s.gate = newGate(s.options.Options, "Chaos.Behavior", o.Validate())
	s.options.Options = s.common
	return s
}

// Options returns the options with the defaults filled in.
func (s *Behavior) Options() BehaviorOptions { return s.options }

// Describe returns the [BehaviorOptions]. It is for [pipeline.Pipeline.Describe].
func (s *Behavior) Describe() (options, state any) { return s.options, nil }

// Execute runs next, after the behavior. It implements [pipeline.Strategy].
func (s *Behavior) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.injects(ctx)
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
