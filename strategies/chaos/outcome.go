package chaos

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// OutcomeOptions are the options of an [Outcome]. Either Results or ResultFunc must be set.
type OutcomeOptions struct {
	Options `yaml:",inline"`
	// Results are one or more outcomes, one of which is picked at random each time.
	Results []Result `json:"-" yaml:"-"`
	// ResultFunc returns the outcome. If ok is false, nothing is injected.
	ResultFunc func(ctx context.Context) (r Result, ok bool) `json:"-" yaml:"-"`
}

// A Result is what an [Outcome] returns. The value must be of the type that [pipeline.ExecuteValue] is called for.
type Result struct {
	Value any
	Err   error
	// Weight says how often it is picked from [OutcomeOptions.Results] in proportion to the others. The default is 100.
	Weight int
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *OutcomeOptions) Validate() error {
	if o == nil {
		o = new(OutcomeOptions)
	}
	var p validate.Problems
	o.Options.validate(&p)
	if (len(o.Results) == 0) == (o.ResultFunc == nil) {
		p.Add("", nil, "must have either {Results} or {ResultFunc}")
	}
	for i, r := range o.Results {
		p.AtLeast(fmt.Sprintf("Results[%d].Weight", i), r.Weight, 0)
	}
	return p.Err("chaos")
}

// An Outcome is a strategy that returns something else in place of what comes after it: a result that is empty, stale or
// wrong. For errors alone, use a [Fault]. Make one with [NewOutcome]. The zero Outcome injects nothing. It is safe for
// concurrent use.
type Outcome struct {
	gate
	options OutcomeOptions
	picker  weightedPicker // of the Results
}

// NewOutcome makes a strategy that injects outcomes. If o is invalid, making a pipeline of the strategy fails.
func NewOutcome(o *OutcomeOptions) *Outcome {
	s := new(Outcome)
	if o != nil {
		s.options = *o
	}
	s.gate = newGate(s.options.Options, "Chaos.Outcome", o.Validate())
	s.options.Options = s.common
	s.options.Results = slices.Clone(s.options.Results)
	for _, r := range s.options.Results {
		s.picker.add(r.Weight)
	}
	return s
}

// Options returns the options with the defaults filled in.
func (s *Outcome) Options() OutcomeOptions { return s.options }

// Describe returns the [OutcomeOptions]. It is for [pipeline.Pipeline.Describe].
func (s *Outcome) Describe() (options, state any) { return s.options, nil }

// Execute returns an outcome or runs next. It implements [pipeline.Strategy].
func (s *Outcome) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.injects(ctx)
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
	return s.options.Results[s.picker.pick(s.random())], true
}
