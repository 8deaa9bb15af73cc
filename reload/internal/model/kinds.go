package model

import (
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Kinds are the kinds and functions that a file can name: weir's own and the program's.
type Kinds struct {
	Strategies map[string]StrategyKind
	Limiters   map[string]reflect.Type // the options; nil for a chain, which has none, and for a kind whose import is missing
	Functions  map[Purpose][]string    // the registered names, sorted
	Sections   map[string]SectionKind
	// AcceptUnknown reports whether a file can name other kinds and functions, too.
	AcceptUnknown bool
	// OnlySections reports whether a file has only sections, and neither limiters nor budgets nor pipelines.
	OnlySections bool
}

// A StrategyKind is a kind of strategy.
type StrategyKind struct {
	Options     reflect.Type
	DefaultName string // in telemetry; "": the strategies have no names
}

// The kinds that the decoder treats specially: they have more fields than their options.
const (
	RateLimiterKind = "rate_limiter"
	PartitionedKind = "partitioned"
	ChainKind       = "chain"
)

// OwnKinds returns weir's own kinds.
func OwnKinds() *Kinds {
	return &Kinds{Strategies: maps.Clone(ownStrategies), Limiters: maps.Clone(ownLimiters), Functions: make(map[Purpose][]string)}
}

var ownStrategies = map[string]StrategyKind{
	RateLimiterKind:   {reflect.TypeFor[RateLimiterOptions](), "RateLimiter"},
	"retry":           {reflect.TypeFor[RetryOptions](), "Retry"},
	"timeout":         {reflect.TypeFor[TimeoutOptions](), "Timeout"},
	"circuit_breaker": {reflect.TypeFor[CircuitBreakerOptions](), "CircuitBreaker"},
	"fallback":        {reflect.TypeFor[FallbackOptions](), "Fallback"},
	"hedging":         {reflect.TypeFor[HedgingOptions](), "Hedging"},
	"pipeline":        {reflect.TypeFor[PipelineOptions](), ""},
	"chaos_fault":     {reflect.TypeFor[ChaosFaultOptions](), "Chaos.Fault"},
	"chaos_latency":   {reflect.TypeFor[ChaosLatencyOptions](), "Chaos.Latency"},
	"chaos_outcome":   {reflect.TypeFor[ChaosOutcomeOptions](), "Chaos.Outcome"},
	"chaos_behavior":  {reflect.TypeFor[ChaosBehaviorOptions](), "Chaos.Behavior"},
}

var ownLimiters = map[string]reflect.Type{
	"token_bucket":   reflect.TypeFor[limiter.TokenBucketOptions](),
	"fixed_window":   reflect.TypeFor[limiter.FixedWindowOptions](),
	"sliding_window": reflect.TypeFor[limiter.SlidingWindowOptions](),
	"calendar":       reflect.TypeFor[limiter.CalendarOptions](),
	"concurrency":    reflect.TypeFor[limiter.ConcurrencyOptions](),
	"unlimited":      reflect.TypeFor[struct{}](),
	"adaptive":       nil, // see SetLearning
	"throttler":      nil,
	PartitionedKind:  reflect.TypeFor[PartitionedOptions](),
	ChainKind:        nil,
}

// OwnOptions returns the structs that weir's own options are decoded into, by the name of their definition in the schema.
func OwnOptions() map[string]reflect.Type {
	all := map[string]reflect.Type{"budget": reflect.TypeFor[budget.Options](), "store": reflect.TypeFor[Store]()}
	for name, t := range ownLimiters {
		if t != nil {
			all["limiter."+name] = t
		}
	}
	for name, kind := range ownStrategies {
		all["strategy."+name] = kind.Options
	}
	return all
}

// Partitionable are the kinds of limiters that a partitioned limiter can have for each key.
var Partitionable = []string{"calendar", "concurrency", "fixed_window", "sliding_window", "token_bucket"}

// Storable are the kinds of limiters that can have a store.
var Storable = append(slices.Clone(Partitionable), PartitionedKind)

// StrategyNames returns the sorted names of the kinds of strategies.
func (k *Kinds) StrategyNames() []string { return slices.Sorted(maps.Keys(k.Strategies)) }

// LimiterNames returns the sorted names of the kinds of limiters.
func (k *Kinds) LimiterNames() []string { return slices.Sorted(maps.Keys(k.Limiters)) }

// StorableName reports whether a limiter in a store can have that name.
func StorableName(name string) bool {
	return store.Check(name, rate.Example(rate.FixedWindow), nil) == nil
}

// Adapts reports whether l or one of its members learns from the outcomes of executions.
func (l *Limiter) Adapts() bool {
	_, learns := Learning[l.Kind]
	return learns || slices.ContainsFunc(l.Members, (*Limiter).Adapts)
}

// CanAdapt reports whether l or one of its members learns from the outcomes of executions, or may do so because its kind
// is the program's.
func (l *Limiter) CanAdapt() bool {
	_, own := ownLimiters[l.Kind]
	return !own || l.Adapts() || slices.ContainsFunc(l.Members, (*Limiter).CanAdapt)
}

// A LearningKind is a kind of limiter that learns from the outcomes of executions.
type LearningKind struct {
	Make     func(options any) (limiter.Limiter, error)
	Describe func(options any) string // nil: by its options
}

// Learning are the kinds that learn. Without package reload/adaptive their functions are nil, and so are their options in [OwnKinds].
var Learning = map[string]LearningKind{"adaptive": {}, "throttler": {}}

// Adaptive makes a strategy that tells its limiter of the outcomes. It is nil without package reload/adaptive.
var Adaptive func(l limiter.Limiter, o ratelimit.Options, handle func(result any, err error) bool) pipeline.Strategy

// SetLearning sets a kind that learns. Only functions init call it.
func SetLearning(kind string, options reflect.Type, describe func(any) string, made func(any) (limiter.Limiter, error)) {
	Learning[kind], ownLimiters[kind] = LearningKind{made, describe}, options
}

// MissingImport says what the program lacks for a part of its file.
func MissingImport(part string) string {
	return part + ` needs a program with: import _ "github.com/weir-go/weir/reload/adaptive"`
}
