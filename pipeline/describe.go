package pipeline

import (
	"path"
	"reflect"
)

// A Description says what a pipeline consists of and what state it is in. It is for status pages and tests.
type Description struct {
	Name     string `json:"name"`
	Instance string `json:"instance,omitempty"`
	// Running is the number of executions on the version in force. It is 0 unless the pipeline belongs to a registry or
	// a [Reloadable], because others do not count executions.
	Running int `json:"running"`
	// Strategies has one entry for each strategy, the outermost first.
	Strategies []StrategyDescription `json:"strategies"`
}

// A StrategyDescription describes one strategy of a pipeline.
type StrategyDescription struct {
	// Name is the name in telemetry.
	Name string `json:"name"`
	// Kind is the package that its type comes from, such as "retry".
	Kind string `json:"kind"`
	// Options are the options of the strategy, usually a struct with the defaults filled in; nil if the strategy does
	// not describe itself.
	Options any `json:"options,omitempty"`
	// State is the present state of the strategy, such as the statistics of its limiter; nil if it has none.
	State any `json:"state,omitempty"`
	// Pipeline describes the pipeline that is embedded here, see [Embed]; nil for any other strategy.
	Pipeline *Description `json:"pipeline,omitempty"`
}

// Running returns how many executions run on the version in force: [Description.Running].
func (p *Pipeline) Running() int { return p.load().tracker.running() }

// Describe describes the pipeline as it is now. The Options and State of a strategy are what its method
// Describe() (options, state any) returns.
func (p *Pipeline) Describe() Description {
	v := p.load()
	d := Description{
		Name:       v.source.Pipeline,
		Instance:   v.source.Instance,
		Strategies: make([]StrategyDescription, 0, len(v.strategies)),
	}
	d.Running = v.tracker.running()
	for i, s := range v.strategies {
		d.Strategies = append(d.Strategies, describeStrategy(v.sourceOf(i).Strategy, s))
	}
	return d
}

func describeStrategy(name string, s Strategy) StrategyDescription {
	d := StrategyDescription{Name: name, Kind: kindOf(s)}
	if self, ok := s.(interface{ Describe() (options, state any) }); ok {
		d.Options, d.State = self.Describe()
	}
	if e, ok := s.(interface{ Pipeline() *Pipeline }); ok {
		inner := e.Pipeline().Describe()
		d.Pipeline = &inner
	}
	return d
}

// kindOf returns the last element of the path of the package that has the type of s.
func kindOf(s Strategy) string {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return path.Base(t.PkgPath())
}
