package pipeline

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/deadline"
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
	// Listener receives the events. If nil, or an interface that holds a nil pointer or func, no events are made, and
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
	all := c.Listener
	if isnil.Value(all) {
		all = nil
	}
	listener, others := splitListener(all)
	v := &version{
		source:     Source{Pipeline: c.Name, Instance: c.Instance},
		listener:   listener,
		enabler:    enablerOf(listener),
		strategies: slices.Clone(c.Strategies),
		tracker:    t,
	}
	v.mode = modeOf(len(v.strategies) == 0 && listener == nil, t != nil)
	v.quiet = v.link(others)
	if listener != nil {
		v.observed = v.link(all)
	}
	return v
}

// link returns the entry to a chain of steps, one for each strategy, that report to listener. The listeners in it that
// want the events of every execution get the attempts.
func (v *version) link(listener Listener) step {
	// One slice for all, so that the steps of an execution are neighbors in memory.
	steps := make([]step, len(v.strategies)+1)
	attempts, _ := splitListener(listener)
	measurer := MeasurerOf(listener)
	leases, _ := measurer.(LeaseMeasurer)
	instant := measurer == nil || isInstant(measurer)
	steps[0] = step{listener: listener, attempts: attempts, measurer: measurer, source: v.source, tracker: v.tracker}
	for i, s := range v.strategies {
		steps[i+1] = step{
			strategy: s, listener: listener, attempts: attempts, measurer: measurer, leases: leases, measuresInstantly: instant,
			source: v.sourceOf(i), tracker: v.tracker, takesEarly: instant && deadline.IsInstant(s),
		}
		steps[i].next = &steps[i+1]
	}
	return steps[0]
}
