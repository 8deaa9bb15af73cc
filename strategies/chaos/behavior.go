package chaos

import (
	"cmp"
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
	o = cmp.Or(o, new(BehaviorOptions))
	var p validate.Problems
	o.validate(&p)
	if o.Behavior == nil {
		p.Add("Behavior", nil, "must be set")
	}
	return p.Err("chaos")
}

// A Behavior is a strategy that calls a function before it runs what comes after it. Make one with [NewBehavior]. The
// zero Behavior calls none. It is safe for concurrent use if the function is.
type Behavior struct{ gate[BehaviorOptions] }

// NewBehavior makes a strategy that injects a behavior. If o is invalid, making a pipeline of the strategy fails.
func NewBehavior(o *BehaviorOptions) *Behavior {
	full := *cmp.Or(o, new(BehaviorOptions))
	full.setDefaults("Chaos.Behavior")
	return &Behavior{newGate(full, full.Options, o.Validate(), injector{
		event: EventBehavior,
		injection: func(ctx context.Context, _ pipeline.Next) (pipeline.Event, bool) {
			return pipeline.Event{Err: full.Behavior(ctx)}, true
		},
	})}
}
