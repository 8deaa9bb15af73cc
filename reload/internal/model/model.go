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

// The fields of a file.
const (
	LimitersField   = "limiters"
	BudgetsField    = "budgets"
	PipelinesField  = "pipelines"
	AllowEmptyField = "allow_empty"
	SchemaField     = "$schema" // what an editor finds the schema by
)

// ignoredPrefix begins the fields of a file that are there for their anchors.
const IgnoredPrefix = "x-"

// storeField stands beside the kind of a limiter, under limiters and in a rate_limiter alike:
// in-process or not is no matter of the kind, and one line more or less.
const StoreField = "store"

// partitionable are the kinds that a partitioned limiter can have for each key.
var Partitionable = []string{"concurrency", "fixed_window", "sliding_window", "token_bucket"}

// storable are the kinds that can have a store.
var Storable = append(slices.Clone(Partitionable), "partitioned")

// A fileModel is what a file describes.
type File struct {
	Limiters  []*Limiter  // shared, in the order of the file
	Budgets   []*Budget   // in the order of the file
	Pipelines []*Pipeline // in the order of the file
}

// A pipelineModel is a pipeline as the file describes it.
type Pipeline struct {
	Name       string
	Strategies []*Strategy
	Places     []document.Place // of the strategies
}

// A strategyModel is a strategy as the file describes it, without places.
type Strategy struct {
	Kind    string
	Name    string   // in telemetry; "" if it is not known
	Usual   string   // the name of the kind without a name; "" if it has none
	Options any      // a struct; nil of kinds that are not known
	Limiter *Limiter // of a rate limiter
	Budget  *Budget  // of what makes more attempts, if it has one
	Apart   bool     // other names of the file could be those of instances, see ownName
}

// A limiterModel is a limiter as the file describes it. It has no places, so that
// two of them are equal if they mean the same.
type Limiter struct {
	Name    string // of a shared one
	Kind    string
	Options any        // a struct; of a chain nil, and of kinds that are not known
	Each    *Limiter   // of a partitioned one
	Members []*Limiter // of a chain, shared ones
	Store   *Store     // where its state is, and that of each; nil: in the process
}

// A budgetModel is a budget as the file describes it. All budgets are shared, by
// name.
type Budget struct {
	Name    string
	Options budget.Options
}

// A storeModel says in which store the state of a limiter is, and how that is dealt with.
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

// ownName is what the registry keeps the limiter, or the circuit, of one strategy by:
// "pipeline/strategy", or "pipeline/instance/strategy". Where another name of the file could
// be the latter, such as that of a pipeline "pipeline/instance", it is
// "pipeline//instance/strategy", with the slashes of the instance escaped.
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

// keeps tells whether the registry keeps something of the strategy's own by its name,
// what that is, and what the registry puts before the name.
func (s *Strategy) Keeps() (prefix, what string, ok bool) {
	if s.Kind == "circuit_breaker" {
		return CircuitKind + " ", "circuit", true
	}
	return "", "limiter", s.Limiter != nil && s.Limiter.Name == "" && s.Limiter.Kind != "chain"
}

// full returns the options with the defaults. What is off is -1.
func (m *Budget) Full() budget.Options {
	made, err := budget.New(&m.Options)
	if err != nil { // Parse has seen to it
		return m.Options
	}
	return made.Options()
}

// Validate asks a store. What depends on a kind that is not known it does not see.
func (m Store) Validate() error {
	how := m.LimiterOptions
	if m.kind == 0 {
		how.LeaseTTL = 0
	}
	return CheckStored(StoredExample(m.kind), how)
}

// circuitKind is what the registry calls a circuit breaker.
const CircuitKind = "circuit breaker"

// refusal returns what a store says of a limiter with these options.
func CheckStored(o any, how store.LimiterOptions) error { return store.Check("any", o, &how) }

// storedNameOK reports whether a limiter in a store can have that name.
func StoredName(name string) bool {
	return store.Check(name, StoredExample(0), nil) == nil
}

// storedExample are options of a kind that every store takes; of 0 those of any.
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
