// Package model has what a file describes, as data. Package decode makes a [File], package reload compares two Files and
// builds their pipelines, and package explain describes a File in words. Package model also has what a file can contain:
// the kinds, and the structs that their options are decoded into.
//
//   - model.go: File, Pipeline, Strategy, Limiter, Budget, Store, Section, and the names that sections give.
//   - kinds.go: Kinds, and weir's own.
//   - options.go: the fields of a file, and the options of weir's own kinds, with the names of functions in place of functions.
//   - field.go: the fields of an options struct by their names in a file, the rules in their tags, and which types a file can
//     be decoded into.
package model

import (
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/budget"
)

// A File is what a file describes, in its order.
type File struct {
	Limiters  []*Limiter // the shared ones
	Budgets   []*Budget
	Pipelines []*Pipeline
	Sections  []*Section
	// LimiterNamed has the shared limiters by name.
	LimiterNamed map[string]*Limiter
	// Names has the names that the sections give.
	Names Names
	// PipelinesAt is where the pipelines begin.
	PipelinesAt document.Place
}

// A Pipeline is a pipeline of the file.
type Pipeline struct {
	Name       string
	Strategies []*Strategy
	Places     []document.Place // of the strategies
}

// A Strategy is a strategy of a pipeline. It has no places, so that [reflect.DeepEqual] reports whether two of them
// mean the same.
type Strategy struct {
	Kind    string
	Name    string   // in telemetry; "": not known
	Options any      // a struct; nil if the kind is not known
	Given   []string // see [Names.From]
	Limiter *Limiter // of a rate limiter
	Budget  *Budget  // of a retry or hedging; nil: none
}

// A Limiter is a limiter of the file. Like a [Strategy], it has no places.
type Limiter struct {
	Name    string // of a shared limiter; "": it is written in a strategy
	Kind    string
	Options any        // a struct; nil for a chain, and if the kind is not known
	Each    *Limiter   // of a partitioned limiter: the limiter of each key
	Members []*Limiter // of a chain: shared limiters
	Store   *Store     // where the state is; nil: in the process
	Given   []string   // see [Names.From]
}

// A Budget is a budget of the file. All budgets are shared, by name.
type Budget struct {
	Name    string
	Options budget.Options
}

// A Store is the store of a limiter and the options of the limiter in it.
type Store struct {
	// The store that the program has registered, which holds the state.
	Name                 string `yaml:"name" reload:"names=store"`
	store.LimiterOptions `yaml:",inline"`
}

// RegistryName returns the name under which the registry keeps the limiter or circuit breaker of the strategy s of p:
// "pipeline/strategy" or, for an instance of p, "pipeline/instance/strategy". Only the instance can have a slash.
func (p *Pipeline) RegistryName(s *Strategy, instance string) string {
	if instance != "" {
		instance += "/"
	}
	return p.Name + "/" + instance + s.Name
}

// A SectionKind is a top-level field of the program. Its functions get the decoded value, a struct of the type Options.
type SectionKind struct {
	Options  reflect.Type
	Doc      string
	Required bool
	Complete bool // AcceptUnknown does not apply to files with this section
	Names    func(n *Names, options any)
	Check    func(f *File, options any) error
	Explain  func(f *File, options any) string
	// Builds returns the build functions of the section's pipelines by name, in the form that package reload knows. If
	// nil, the section has no pipelines.
	Builds func(options any) map[string]any
}

// A Section is a top-level field of the program in a file.
type Section struct {
	Name    string
	Options any
	// Limiters has the shared limiters that the section names, by name.
	Limiters map[string]*Limiter
	// Builds has the build functions of the section's pipelines by name.
	Builds map[string]any
	// Place is where the section stands, and Places has where its fields with the rule Fixed are written, by path.
	Place  document.Place
	Places map[string]document.Place
}

// Pipelines returns the sorted names of the section's pipelines.
func (s *Section) Pipelines() []string { return slices.Sorted(maps.Keys(s.Builds)) }

// SameMeaning reports whether the pipelines of two sections are built in the same way.
func (s *Section) SameMeaning(other *Section) bool {
	return s.Name == other.Name && reflect.DeepEqual(s.Options, other.Options) && reflect.DeepEqual(s.Limiters, other.Limiters)
}

// Names collects the names that the sections of a file give to functions and values.
type Names struct {
	// Given has what the names stand for, by purpose and name.
	Given map[Purpose]map[string]Given
	// Refuses reports whether a name cannot be given, and adds the problem.
	Refuses func(what Purpose, name string, isNil bool) bool
}

// A Given is a function or value that a section makes.
type Given struct {
	// From is the text of the options that it is made from. If the texts are the same, the functions or values are, too.
	From string
	// New makes what is registered for the purpose.
	New func() (any, error)
}

// Give adds a name, unless it is refused.
func (n *Names) Give(what Purpose, name string, from any, isNil bool, makeIt func() (any, error)) {
	if n.Refuses(what, name, isNil) {
		return
	}
	if n.Given[what] == nil {
		n.Given[what] = make(map[string]Given)
	}
	n.Given[what][name] = Given{Text(from), makeIt}
}

// From returns a text for each name in the options that a section has given: what the name stands for, so that
// [reflect.DeepEqual] sees that a limiter or strategy is to be built again.
func (n *Names) From(options any) (all []string) {
	if options == nil || len(n.Given) == 0 {
		return nil
	}
	v := reflect.ValueOf(options)
	for _, f := range FieldsOf(v.Type()) {
		if f.Purpose == "" {
			continue
		}
		if g, ok := n.Given[f.Purpose][v.FieldByIndex(f.Index).String()]; ok {
			all = append(all, f.Name+": "+g.From)
		}
	}
	return all
}
