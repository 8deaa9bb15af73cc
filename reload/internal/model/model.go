// Package model is what a file describes, as data: the decoder of package reload makes it, and package reload builds
// pipelines of it, compares two of it, and hands it to package explain. It also has the structs that the options are
// decoded into, and what is to be known of their fields.
//
//   - model.go: File, Pipeline, Strategy, Limiter, Budget, Store.
//   - options.go: the options of weir's own kinds, with the names of functions in place of functions.
//   - field.go: the fields of an options struct by their names in a file.
//   - rule.go and rulestrategy.go: what a file can say of each field other than its type, and its description.
package model

import (
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
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

// IgnoredPrefix begins the names of top-level fields that are ignored: they are a place for anchors.
const IgnoredPrefix = "x-"

// StoreField is the field beside the kind of a limiter, under limiters and in a rate_limiter alike, so that moving a
// limiter into a store adds one line to a file.
const StoreField = "store"

// Partitionable are the kinds of limiters that a partitioned limiter can have for each key.
var Partitionable = []string{"concurrency", "fixed_window", "sliding_window", "token_bucket"}

// Storable are the kinds of limiters that can have a store.
var Storable = append(slices.Clone(Partitionable), "partitioned")

// A File is what a file describes, in its order.
type File struct {
	Limiters  []*Limiter // the shared ones
	Budgets   []*Budget
	Pipelines []*Pipeline
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
	Usual   string   // the name in telemetry unless it is set; "": none
	Options any      // a struct; nil if the kind is not known
	Limiter *Limiter // of a rate limiter
	Budget  *Budget  // of a retry or hedging; nil: none
	Apart   bool     // see OwnName
}

// A Limiter is a limiter of the file. Like a [Strategy], it has no places.
type Limiter struct {
	Name    string // of a shared limiter; "": it is written in a strategy
	Kind    string
	Options any        // a struct; nil for a chain, and if the kind is not known
	Each    *Limiter   // of a partitioned limiter: the limiter of each key
	Members []*Limiter // of a chain: shared limiters
	Store   *Store     // where the state is; nil: in the process
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
	kind                 backend.Kind // see NewStore
}

// NewStore returns the Store of a limiter of that kind, or of a partitioned limiter with limiters of that kind for its
// keys; 0 if the kind is not known.
func NewStore(kind backend.Kind) *Store { return &Store{kind: kind} }

// Kind returns the kind that NewStore was given. It is no field: a file cannot set it.
func (m *Store) Kind() backend.Kind { return m.kind }

// OwnName returns the name in the registry of the strategy's own limiter or circuit breaker: "pipeline/strategy", or
// "pipeline/instance/strategy" for an instance. If Apart, the latter can be the name of something else in the file,
// such as the limiter of a pipeline "pipeline/instance"; the name then is "pipeline//instance/strategy", with the
// slashes of the instance escaped.
func (s *Strategy) OwnName(pipeline, instance string) string {
	switch {
	case instance == "":
		return pipeline + "/" + s.Name
	case s.Apart || strings.Contains(instance, "/"):
		return pipeline + "//" + instanceEscapes.Replace(instance) + "/" + s.Name
	default:
		return pipeline + "/" + instance + "/" + s.Name
	}
}

var instanceEscapes = strings.NewReplacer("%", "%25", "/", "%2F")

// Keeps reports whether the registry keeps something by OwnName. If so, what is what that is, and prefix is what the
// registry puts before the name.
func (s *Strategy) Keeps() (prefix, what string, ok bool) {
	if s.Kind == "circuit_breaker" {
		return CircuitKind + " ", "circuit", true
	}
	return "", "limiter", s.Limiter != nil && s.Limiter.Name == "" && s.Limiter.Kind != "chain"
}

// Full returns the options with their defaults. What is off is -1.
func (m *Budget) Full() budget.Options {
	made, err := budget.New(&m.Options)
	if err != nil { // Parse has refused it
		return m.Options
	}
	return made.Options()
}

// Validate returns what a store says of the options. If the kind of limiter is not known, only what depends on no
// kind is checked.
func (m Store) Validate() error {
	how := m.LimiterOptions
	if m.kind == 0 {
		how.LeaseTTL = 0
	}
	return CheckStored(StoredExample(m.kind), how)
}

// CircuitKind is the [github.com/weir-go/weir/registry.Kept.Kind] of circuit breakers.
const CircuitKind = "circuit breaker"

// CheckStored returns what a store says of a limiter with these options.
func CheckStored(o any, how store.LimiterOptions) error { return store.Check("any", o, &how) }

// StoredName reports whether a limiter in a store can have that name.
func StoredName(name string) bool {
	return store.Check(name, StoredExample(0), nil) == nil
}

// StoredExample returns valid options of that kind; 0 stands for any kind.
func StoredExample(k backend.Kind) any {
	switch k {
	case backend.KindTokenBucket:
		return limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second}
	case backend.KindSlidingWindow:
		return limiter.SlidingWindowOptions{PermitLimit: 1, Window: time.Second, SegmentsPerWindow: 1}
	case backend.KindConcurrency:
		return limiter.ConcurrencyOptions{PermitLimit: 1}
	default:
		return limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second}
	}
}
