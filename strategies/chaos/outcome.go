package chaos

import (
	"cmp"
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
	o = cmp.Or(o, new(OutcomeOptions))
	var p validate.Problems
	o.validate(&p)
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
type Outcome struct{ gate[OutcomeOptions] }

// NewOutcome makes a strategy that injects outcomes. If o is invalid, making a pipeline of the strategy fails.
func NewOutcome(o *OutcomeOptions) *Outcome {
	full := *cmp.Or(o, new(OutcomeOptions))
	full.setDefaults("Chaos.Outcome")
	full.Results = slices.Clone(full.Results)
	picker := newPicker(full.Results, func(r Result) int { return r.Weight })
	return &Outcome{newGate(full, full.Options, o.Validate(), injector{
		event:    EventOutcome,
		replaces: true,
		injection: func(ctx context.Context, _ pipeline.Next) (e pipeline.Event, ok bool) {
			if full.ResultFunc == nil {
				r := full.Results[picker.pick(full.random(ctx))]
				return pipeline.Event{Result: r.Value, Err: r.Err}, true
			}
			r, ok := full.ResultFunc(ctx)
			return pipeline.Event{Result: r.Value, Err: r.Err}, ok
		},
	})}
}
