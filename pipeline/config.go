package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
)

// A Config says what a Pipeline consists of. The zero Config makes a pipeline without a name that runs the callback
// and nothing else.
type Config struct {
	// Name is the pipeline's name in telemetry and errors.
	Name string
	// Instance distinguishes pipelines of the same name, such as those of a region or a tenant.
	Instance string
	// Strategies run in this order: the first is the outermost.
	Strategies []Strategy
	// Listener is told what happens. If nil, or an interface that holds a nil pointer or func, no events are made, and
	// executions do not pay for them.
	Listener Listener
}

// New makes a pipeline of strategies, the outermost first, without a Listener. See [Config.Build] for the errors.
func New(name string, strategies ...Strategy) (*Pipeline, error) {
	return Config{Name: name, Strategies: strategies}.Build()
}

// Build makes the pipeline. The error is a [weir.OptionsError] with every problem: the strategies that are nil, and
// what the Validate methods of the others return. The paths of its problems are of the form "Strategies[1]" or
// "Strategies[1].MaxRetries".
func (c Config) Build() (*Pipeline, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := new(Pipeline)
	p.current.Store(c.compile(nil))
	return p, nil
}

// validate returns a [weir.OptionsError] with everything that is wrong with c, or nil.
func (c Config) validate() error {
	var p validate.Problems
	for i, s := range c.Strategies {
		path := fmt.Sprintf("Strategies[%d]", i)
		if isnil.Value(s) {
			p.Add(path, nil, "must not be nil")
		} else if v, ok := s.(interface{ Validate() error }); ok {
			p.Include(path, v.Validate())
		}
	}
	err, wrong := p.Err("pipeline").(*weir.OptionsError) //nolint:errorlint // Err returns it unwrapped
	if !wrong {
		return nil
	}
	err.Name = c.Name
	return err
}

// compile makes the version of c. t counts its executions; if t is nil, they are not counted. Everything that depends
// only on c is decided here, so that executions do not decide it each time.
func (c Config) compile(t *tracker) *version {
	var ordinary, rare listeners
	all := hooksOf(c.Listener)
	for _, h := range all {
		if h.Rare || h.OnEvent == nil {
			rare = append(rare, h)
		} else {
			ordinary = append(ordinary, h)
		}
	}
	v := &version{
		source:     Source{Pipeline: c.Name, Instance: c.Instance},
		strategies: slices.Clone(c.Strategies),
		tracker:    t,
		enabled:    ordinary.Hooks().Enabled,
		simple:     len(ordinary) == 0 && t == nil,
	}
	v.quiet = *v.newSteps(rare.Hooks(), nil)
	if len(ordinary) > 0 {
		v.observed = v.newSteps(all.Hooks(), ordinary.Hooks().OnEvent)
	}
	return v
}

// newSteps returns the entry to a chain of steps, one for each strategy, that report to h, and what is ordinary to ordinary.
func (v *version) newSteps(h Hooks, ordinary func(ctx context.Context, e Event)) *step {
	// One slice for all, so that the steps of an execution are neighbors in memory.
	steps := make([]step, len(v.strategies)+1)
	for i := range steps {
		s := &steps[i]
		*s = step{onEvent: h.OnEvent, ordinary: ordinary, measure: h.OnMeasurement, source: v.source, tracker: v.tracker}
		if i > 0 {
			s.strategy, s.source = v.strategies[i-1], v.sourceOf(i-1)
			steps[i-1].next = s
		}
	}
	return &steps[0]
}
