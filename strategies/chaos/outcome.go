package chaos

import (
	"context"
	"slices"

	"github.com/weir-go/weir/pipeline"
)

// OutcomeOptions are the options of an [Outcome]. Either Results or ResultFunc must
// be set.
type OutcomeOptions struct {
	Options `yaml:",inline"`
	// Results are outcomes of which one is picked at random; there may be just one.
	Results []Result `json:"-" yaml:"-"`
	// ResultFunc makes the outcome; with ok false nothing is injected.
	ResultFunc func(ctx context.Context) (r Result, ok bool) `json:"-" yaml:"-"`
}

// A Result is what an [Outcome] returns. The value must be of the type that
// [pipeline.ExecuteValue] is called for.
type Result struct {
	Value any
	Err   error
	// Weight says how often it is picked from [OutcomeOptions.Results] in proportion
	// to the others; 0 is 100.
	Weight int
}

// Validate returns every problem in one error, or nil.
func (o *OutcomeOptions) Validate() error {
	if o == nil {
		o = new(OutcomeOptions)
	}
	var p problems
	p.common(&o.Options)
	switch {
	case len(o.Results) == 0 && o.ResultFunc == nil:
		p.add("Results and ResultFunc are both missing, one must be set")
	case len(o.Results) > 0 && o.ResultFunc != nil:
		p.add("Results and ResultFunc are both set, there can be only one")
	}
	for i, r := range o.Results {
		if r.Weight < 0 {
			p.add("Results[%d].Weight is %d, must be at least 0", i, r.Weight)
		}
	}
	return p.err()
}

// An Outcome is a strategy that returns something else in place of what comes after
// it: a result that is empty, stale or wrong. For errors alone there is [Fault]. Make
// one with [NewOutcome]; the zero Outcome injects nothing. It is safe for concurrent
// use.
type Outcome struct {
	gate
	options OutcomeOptions
	wheel   wheel // of the Results
}

// NewOutcome makes a strategy that injects outcomes. Without any, making a pipeline of
// it fails.
func NewOutcome(o *OutcomeOptions) *Outcome {
	s := new(Outcome)
	if o != nil {
		s.options = *o
	}
	s.gate = newGate(s.options.Options, "Chaos.Outcome", o.Validate())
	s.options.Options = s.common
	s.options.Results = slices.Clone(s.options.Results)
	for _, r := range s.options.Results {
		s.wheel.add(r.Weight)
	}
	return s
}

// Options returns the options, with the defaults filled in.
func (s *Outcome) Options() OutcomeOptions { return s.options }

// Describe says what the strategy is made of: its [OutcomeOptions]. It is for
// [pipeline.Pipeline.Describe].
func (s *Outcome) Describe() (options, state any) { return s.options, nil }

// Execute returns an outcome or runs next. It implements [pipeline.Strategy].
func (s *Outcome) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.opens(ctx)
	if err != nil {
		return nil, err
	}
	if !inject {
		return next.Run(ctx)
	}
	r, ok := s.result(ctx)
	if !ok {
		return proceed(ctx, next)
	}
	i := Injection{Value: r.Value, Err: r.Err}
	s.report(ctx, next, EventOutcome, i)
	s.call(ctx, next, i)
	return r.Value, r.Err
}

// result returns the outcome to inject; ok is false if there is none.
func (s *Outcome) result(ctx context.Context) (r Result, ok bool) {
	if s.options.ResultFunc != nil {
		return s.options.ResultFunc(ctx)
	}
	return s.options.Results[s.wheel.pick(s.random())], true
}
