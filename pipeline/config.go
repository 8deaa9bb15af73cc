package pipeline

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/isnil"
)

// Config is what a Pipeline is made of. The zero Config makes a pipeline without
// a name that runs the callback and nothing else.
type Config struct {
	// Name is how the pipeline is called in telemetry and errors.
	Name string
	// Instance tells pipelines of the same name apart: a region, a tenant.
	Instance string
	// Strategies are run in this order: the first is the outermost.
	Strategies []Strategy
	// Listener is told what happens. nil, also a nil pointer or func inside the
	// interface: nobody is, and nothing is paid for it.
	Listener Listener
}

// New makes a pipeline of strategies, outermost first, that nobody listens to.
// See [Config.Build] for more and for the errors.
func New(name string, strategies ...Strategy) (*Pipeline, error) {
	return Config{Name: name, Strategies: strategies}.Build()
}

// Build makes the pipeline. It returns every problem at once in one error that
// [errors.Is] [ErrInvalidConfig]: strategies that are nil, and what the Validate
// methods of the others say, each with the strategy's position and name.
func (c Config) Build() (*Pipeline, error) {
	if problems := c.problems(); len(problems) > 0 {
		return nil, &configError{name: c.Name, problems: problems}
	}
	p := new(Pipeline)
	p.current.Store(c.compile(nil))
	return p, nil
}

func (c Config) problems() []error {
	var found []error
	for i, s := range c.Strategies {
		if isnil.Value(s) {
			found = append(found, fmt.Errorf("strategy %d is nil", i+1))
			continue
		}
		v, ok := s.(interface{ Validate() error })
		if !ok {
			continue
		}
		if err := v.Validate(); err != nil {
			found = append(found, fmt.Errorf("strategy %d (%s): %w", i+1, describe(s), err))
		}
	}
	return found
}

// describe returns the name of s for an error text.
func describe(s Strategy) string {
	if name := strategyName(s); name != "" {
		return name
	}
	return reflect.TypeOf(s).String()
}

// compile links the steps; there is nothing left to decide when they run.
func (c Config) compile(t *tracker) *version {
	listener := c.Listener
	if isnil.Value(listener) {
		listener = nil
	}
	v := &version{
		source:     Source{Pipeline: c.Name, Instance: c.Instance},
		listener:   listener,
		chooser:    chooserOf(listener),
		strategies: slices.Clone(c.Strategies),
		tracker:    t,
	}
	v.direct = len(v.strategies) == 0 && listener == nil
	v.uncounted = t == nil
	v.bare = v.direct && v.uncounted
	v.unheard = v.link(nil)
	if listener != nil {
		v.entry = v.link(listener)
	}
	return v
}

// link returns the entry to the steps of all strategies.
func (v *version) link(listener Listener) step {
	// One slice for all: the steps of an execution lie side by side.
	steps := make([]step, len(v.strategies)+1)
	measurer := measurerOf(listener)
	leases, _ := measurer.(LeaseMeasurer)
	atOnce := measurer == nil || measuresAtOnce(measurer)
	steps[0] = step{listener: listener, measurer: measurer, source: v.source, tracker: v.tracker}
	for i, s := range v.strategies {
		steps[i+1] = step{
			strategy: s, listener: listener, measurer: measurer, leases: leases, atOnce: atOnce,
			source: v.sourceOf(i), tracker: v.tracker, instant: atOnce && deadline.IsInstant(s),
		}
		steps[i].next = &steps[i+1]
	}
	return steps[0]
}

// configError has every problem of a Config.
type configError struct {
	name     string
	problems []error
}

func (e *configError) Error() string {
	var b strings.Builder
	b.WriteString(ErrInvalidConfig.Error())
	if e.name != "" {
		b.WriteString(" " + e.name)
	}
	for i, p := range e.problems {
		b.WriteString([2]string{": ", "; "}[min(i, 1)])
		b.WriteString(p.Error())
	}
	return b.String()
}

func (e *configError) Is(target error) bool { return target == ErrInvalidConfig }

func (e *configError) Unwrap() []error { return e.problems }
