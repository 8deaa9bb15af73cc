package pipeline

import (
	"path"
	"reflect"
)

// A Description says what a pipeline is made of, and how it is just now. It is for
// pages that people look at, and for tests.
type Description struct {
	Name     string `json:"name"`
	Instance string `json:"instance,omitempty"`
	// Running is how many executions run on the version in force. Only pipelines
	// of a registry or a [Reloadable] count them; of others it is 0.
	Running int `json:"running"`
	// Strategies are described in order, the outermost first.
	Strategies []StrategyDescription `json:"strategies"`
}

// A StrategyDescription describes one strategy of a pipeline.
type StrategyDescription struct {
	// Name is what it is called in telemetry.
	Name string `json:"name"`
	// Kind is the package that its type comes from, such as "retry".
	Kind string `json:"kind"`
	// Options are what the strategy was made with, if it says so; usually a struct
	// of options with the defaults filled in.
	Options any `json:"options,omitempty"`
	// State is what the strategy says about how it is just now, such as the
	// statistics of its limiter; nil: nothing.
	State any `json:"state,omitempty"`
	// Pipeline describes the pipeline that is embedded here; nil: none is.
	Pipeline *Description `json:"pipeline,omitempty"`
}

// Describe describes the pipeline as it is now. A strategy takes part by a method
// Describe() (options, state any).
func (p *Pipeline) Describe() Description {
	v := p.load()
	d := Description{
		Name:       v.source.Pipeline,
		Instance:   v.source.Instance,
		Strategies: make([]StrategyDescription, 0, len(v.strategies)),
	}
	if v.tracker != nil {
		d.Running = v.tracker.running()
	}
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

func kindOf(s Strategy) string {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return path.Base(t.PkgPath())
}
