// Package model has what a file describes, as data. Package decode makes a [File], package reload compares two Files and
// builds their pipelines, and package explain describes a File in words. Package model also has what a file can contain:
// the kinds, the structs that their options are decoded into, and the rules of the fields.
//
//   - model.go: File, Pipeline, Strategy, Limiter, Budget, Store.
//   - kinds.go: Kinds, and weir's own.
//   - options.go: the options of weir's own kinds, with the names of functions in place of functions.
//   - field.go: the fields of an options struct by their names in a file.
//   - rule.go and rules.go: the special values and the description of each field.
//   - section.go: the top-level fields of the program.
//   - text.go: options as texts that can be compared.
package model

import (
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/budget"
)

// The top-level fields of a file.
const (
	LimitersField   = "limiters"
	BudgetsField    = "budgets"
	PipelinesField  = "pipelines"
	AllowEmptyField = "allow_empty"
	SchemaField     = "$schema" // the address of the schema, for editors
)

// OwnFields are the top-level fields of a file that has more than sections. After Kinds.OnlySections a file has none of
// them.
var OwnFields = []string{LimitersField, BudgetsField, PipelinesField, AllowEmptyField}

// LimiterField is the field of a rate_limiter that names a shared limiter.
const LimiterField = "limiter"

// IgnoredPrefix begins the names of top-level fields that are ignored: they are a place for anchors.
const IgnoredPrefix = "x-"

// StoreField is the field beside the kind of a limiter, under limiters and in a rate_limiter alike, so that moving a
// limiter into a store adds one line to a file.
const StoreField = "store"

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
	Name        string
	DoubleSlash bool // see RegistryName
	Strategies  []*Strategy
	Places      []document.Place // of the strategies
}

// A Strategy is a strategy of a pipeline. It has no places, so that [reflect.DeepEqual] reports whether two of them
// mean the same.
type Strategy struct {
	Kind        string
	Name        string // in telemetry; "": not known
	DefaultName string
	Options     any      // a struct; nil if the kind is not known
	Given       []string // see [Names.From]
	Limiter     *Limiter // of a rate limiter
	Budget      *Budget  // of a retry or hedging; nil: none
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
	Name                 string `yaml:"name"`
	store.LimiterOptions `yaml:",inline"`
}

// RegistryName returns the name under which the registry keeps the limiter or circuit breaker of the strategy s of p:
// "pipeline/strategy" or, for an instance of p, "pipeline/instance/strategy". That name could also be the name of a
// limiter of a pipeline "pipeline/instance". So if the file has another name that begins with "pipeline/", DoubleSlash
// is set. If DoubleSlash is set, or the instance has a slash, the name is "pipeline//instance/strategy", with the
// slashes of the instance escaped.
func (p *Pipeline) RegistryName(s *Strategy, instance string) string {
	switch {
	case instance == "":
		return p.Name + "/" + s.Name
	case p.DoubleSlash || strings.Contains(instance, "/"):
		return p.Name + "//" + instanceEscapes.Replace(instance) + "/" + s.Name
	default:
		return p.Name + "/" + instance + "/" + s.Name
	}
}

var instanceEscapes = strings.NewReplacer("%", "%25", "/", "%2F")

// Kept returns what the registry keeps under RegistryName: "limiter", "circuit", or "" for nothing. A limiter and a
// circuit can have the same name.
func (s *Strategy) Kept() string {
	if _, circuit := s.Options.(CircuitBreakerOptions); circuit {
		return "circuit"
	}
	if s.Limiter != nil && s.Limiter.Name == "" && s.Limiter.Kind != ChainKind {
		return "limiter"
	}
	return ""
}

// Adapts reports whether l or one of its members learns from the outcomes of executions.
func (l *Limiter) Adapts() bool {
	switch l.Options.(type) {
	case adaptive.LimiterOptions, adaptive.ThrottlerOptions:
		return true
	}
	return slices.ContainsFunc(l.Members, (*Limiter).Adapts)
}

// CanAdapt reports whether l or one of its members learns from the outcomes of executions, or may do so because its kind
// is the program's.
func (l *Limiter) CanAdapt() bool {
	_, own := ownLimiters[l.Kind]
	return !own || l.Adapts() || slices.ContainsFunc(l.Members, (*Limiter).CanAdapt)
}

// WithDefaults returns the options with their defaults. An option that is off is -1.
func (m *Budget) WithDefaults() budget.Options {
	made, err := budget.New(&m.Options)
	if err != nil { // Parse has refused it
		return m.Options
	}
	return made.Options()
}
