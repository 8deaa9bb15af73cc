package reload

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
	limitersField   = "limiters"
	budgetsField    = "budgets"
	pipelinesField  = "pipelines"
	allowEmptyField = "allow_empty"
	schemaField     = "$schema" // what an editor finds the schema by
)

// ignoredPrefix begins the fields of a file that are there for their anchors.
const ignoredPrefix = "x-"

// storeField stands beside the kind of a limiter, under limiters and in a rate_limiter alike:
// in-process or not is no matter of the kind, and one line more or less.
const storeField = "store"

// partitionable are the kinds that a partitioned limiter can have for each key.
var partitionable = []string{"concurrency", "fixed_window", "sliding_window", "token_bucket"}

// storable are the kinds that can have a store.
var storable = append(slices.Clone(partitionable), "partitioned")

// A fileModel is what a file describes.
type fileModel struct {
	limiters  []*limiterModel  // shared, in the order of the file
	budgets   []*budgetModel   // in the order of the file
	pipelines []*pipelineModel // in the order of the file
}

// A pipelineModel is a pipeline as the file describes it.
type pipelineModel struct {
	name       string
	strategies []*strategyModel
	places     []document.Place // of the strategies
}

// A strategyModel is a strategy as the file describes it, without places.
type strategyModel struct {
	kind    string
	name    string        // in telemetry; "" if it is not known
	usual   string        // the name of the kind without a name; "" if it has none
	options any           // a struct; nil of kinds that are not known
	limiter *limiterModel // of a rate limiter
	budget  *budgetModel  // of what makes more attempts, if it has one
	apart   bool          // other names of the file could be those of instances, see ownName
}

// A limiterModel is a limiter as the file describes it. It has no places, so that
// two of them are equal if they mean the same.
type limiterModel struct {
	name    string // of a shared one
	kind    string
	options any             // a struct; of a chain nil, and of kinds that are not known
	each    *limiterModel   // of a partitioned one
	members []*limiterModel // of a chain, shared ones
	store   *storeModel     // where its state is, and that of each; nil: in the process
}

// A budgetModel is a budget as the file describes it. All budgets are shared, by
// name.
type budgetModel struct {
	name    string
	options budget.Options
}

// A storeModel says in which store the state of a limiter is, and how that is dealt with.
type storeModel struct {
	Name                 string `yaml:"name"`
	store.LimiterOptions `yaml:",inline"`
	kind                 backend.Kind // of the limiter, or of that for each key; 0: not known
}

// ownName is what the registry keeps the limiter, or the circuit, of one strategy by:
// "pipeline/strategy", or "pipeline/instance/strategy". Where another name of the file could
// be the latter, such as that of a pipeline "pipeline/instance", it is
// "pipeline//instance/strategy", with the slashes of the instance escaped.
func (s *strategyModel) ownName(pipeline, instance string) string {
	switch {
	case instance == "":
		return pipeline + "/" + s.name
	case s.apart || strings.Contains(instance, "/"):
		return pipeline + "//" + instanceEscapes.Replace(instance) + "/" + s.name
	default:
		return pipeline + "/" + instance + "/" + s.name
	}
}

var instanceEscapes = strings.NewReplacer("%", "%25", "/", "%2F")

// keeps tells whether the registry keeps something of the strategy's own by its name,
// what that is, and what the registry puts before the name.
func (s *strategyModel) keeps() (prefix, what string, ok bool) {
	if s.kind == "circuit_breaker" {
		return circuitKind + " ", "circuit", true
	}
	return "", "limiter", s.limiter != nil && s.limiter.name == "" && s.limiter.kind != "chain"
}

// full returns the options with the defaults. What is off is -1.
func (m *budgetModel) full() budget.Options {
	made, err := budget.New(&m.options)
	if err != nil { // Parse has seen to it
		return m.options
	}
	return made.Options()
}

// Validate asks a store. What depends on a kind that is not known it does not see.
func (m storeModel) Validate() error {
	how := m.LimiterOptions
	if m.kind == 0 {
		how.LeaseTTL = 0
	}
	return refusal(storedExample(m.kind), how)
}

// circuitKind is what the registry calls a circuit breaker.
const circuitKind = "circuit breaker"

// refusal returns what a store says of a limiter with these options.
func refusal(o any, how store.LimiterOptions) error { return store.Check("any", o, &how) }

// storedNameOK reports whether a limiter in a store can have that name.
func storedNameOK(name string) bool {
	return store.Check(name, storedExample(0), nil) == nil
}

// storedExample are options of a kind that every store takes; of 0 those of any.
func storedExample(k backend.Kind) any {
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
