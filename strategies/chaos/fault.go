package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// ErrInjected is the default error of a [Fault]. It is wrapped in a text that names the strategy.
var ErrInjected = errors.New("injected fault")

// FaultOptions are the options of a [Fault]. At most one of Err, Errors and ErrFunc can be set. If none is, the error is
// [ErrInjected].
type FaultOptions struct {
	Options `yaml:",inline"`
	// Err is the error.
	Err error `json:"-" yaml:"-"`
	// Errors are several errors, one of which is picked at random each time.
	Errors []WeightedError `json:"-" yaml:"-"`
	// ErrFunc returns the error. If it returns nil, nothing is injected.
	ErrFunc func(ctx context.Context) error `json:"-" yaml:"-"`
}

// A WeightedError is one of the errors that a [Fault] picks from.
type WeightedError struct {
	// Err is the error. If nil, nothing is injected when it is picked.
	Err error
	// Weight says how often it is picked in proportion to the others. The default is 100.
	Weight int
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *FaultOptions) Validate() error {
	if o == nil {
		return nil
	}
	var p validate.Problems
	o.validate(&p)
	sources := 0
	for _, set := range []bool{o.Err != nil, len(o.Errors) > 0, o.ErrFunc != nil} {
		if set {
			sources++
		}
	}
	if sources > 1 {
		p.Add("", nil, "must have at most one of {Err}, {Errors} and {ErrFunc}")
	}
	for i, e := range o.Errors {
		p.AtLeast(fmt.Sprintf("Errors[%d].Weight", i), e.Weight, 0)
	}
	return p.Err("chaos")
}

// A Fault is a strategy that fails in place of what comes after it. Make one with [NewFault]. The zero Fault injects
// nothing. It is safe for concurrent use.
type Fault struct{ gate[FaultOptions] }

// NewFault makes a strategy that injects errors. If o is nil, the defaults apply, and it is off. If o is invalid, making a
// pipeline of the strategy fails.
func NewFault(o *FaultOptions) *Fault {
	full := *cmp.Or(o, new(FaultOptions))
	full.setDefaults("Chaos.Fault")
	full.Errors = slices.Clone(full.Errors)
	picker := newPicker(full.Errors, func(e WeightedError) int { return e.Weight })
	return &Fault{newGate(full, full.Options, o.Validate(), injector{
		event:    EventFault,
		replaces: true,
		injection: func(ctx context.Context, next pipeline.Next) (pipeline.Event, bool) {
			err := full.err(ctx, next, picker)
			return pipeline.Event{Err: err}, err != nil
		},
	})}
}

// err returns the error to inject, or nil.
func (o *FaultOptions) err(ctx context.Context, next pipeline.Next, picker weightedPicker) error {
	switch {
	case o.ErrFunc != nil:
		return o.ErrFunc(ctx)
	case o.Err != nil:
		return o.Err
	case len(o.Errors) > 0:
		return o.Errors[picker.pick(o.random(ctx))].Err
	default:
		return fmt.Errorf("chaos: %v: %w", next.Source(), ErrInjected)
	}
}
