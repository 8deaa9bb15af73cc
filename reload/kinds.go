package reload

import (
	"cmp"
	"context"
	_ "embed" // schema.json
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/reload/internal/schema"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
)

// Kinds are the kinds of strategies and limiters, and the functions and values of the program, that a file can name.
// The zero value, and nil, have weir's own kinds and no functions.
//
// A program registers its own with [RegisterStrategy], [RegisterLimiter] and the methods of Kinds that begin with
// Register, before it passes the Kinds to [Parse] or [Start]. RegisterStrategy and RegisterLimiter are functions
// because a method cannot have type parameters. Registering returns no error: Parse and Start return one
// [weir.OptionsError] with everything that is wrong with the registrations. No name has a slash.
//
// Kinds are safe for concurrent use once everything is registered.
type Kinds struct {
	strategies    map[string]strategyKind
	limiters      map[string]limiterKind
	sections      map[string]model.SectionKind
	functions     map[model.Purpose]map[string]any
	acceptUnknown bool                                         // see AcceptUnknown
	onlySections  bool                                         // see OnlySections
	maxFileSize   int                                          // see MaxFileSize; 0: document.MaxSize
	resolve       func(what, name string) (thing any, ok bool) // see Resolve
	resolved      sync.Map                                     // what resolve has returned: func() (any, error), by thingName
	wrong         validate.Problems                            // of the registrations
}

// A strategyKind is a kind of strategy of the program.
type strategyKind struct {
	model.StrategyKind
	build func(b *registry.Builder, options any) (pipeline.Strategy, error)
}

// A limiterKind is a kind of limiter of the program.
type limiterKind struct {
	options reflect.Type
	build   func(b *registry.Builder, name string, options any) (limiter.Limiter, error)
}

// NewKinds returns Kinds with weir's own kinds and no functions.
func NewKinds() *Kinds { return &Kinds{} }

// RegisterStrategy registers a kind of strategy, which a file writes as kind: {…}. O is the struct that the options
// are decoded into. build is called for each version of a pipeline that has such a strategy.
//
// In a file, a field has the name in its yaml tag. If it has no yaml tag, the json tag has the name. A field without
// either has its Go name in snake case. A field is required unless the tag has omitempty. The tag "-" keeps a field out
// of files. Durations, numbers, texts, booleans, types with UnmarshalText, and structs, slices and maps of these can be
// decoded; a struct can contain itself, as in a tree. A field of the type any, or a slice or map of any, takes whatever
// the file has, as encoding/json decodes it. The tag `reload:"off"` lets a field take "off" for -1. If O or *O has a method Validate() error, it is
// called with the decoded options; so is the method of a struct in O. Each problem of a [weir.OptionsError] is reported
// where its field is written, any other error at the options.
//
// The tag reload can have several parts, separated by commas. With default=VALUE, the field has that default if it is 0
// or empty, and a file cannot write 0 or an empty text. The parts least=NUMBER and most=NUMBER are bounds. The tag doc is
// the description of the field in the schema. If a struct has a field _ struct{} with the tag `reload:"oneof=key"`, it
// is decoded from a mapping with exactly one of its fields, and messages call the field a kind of key.
//
// A field "name" of type string is the strategy's name in telemetry. It must be unique in a pipeline. If the file leaves
// it out, the name is the kind.
func RegisterStrategy[O any](k *Kinds, kind string, build func(b *registry.Builder, o O) (pipeline.Strategy, error)) {
	t := reflect.TypeFor[O]()
	if !k.allows("strategy kind", kind, t, build == nil, k.known().StrategyNames()) {
		return
	}
	made := strategyKind{model.StrategyKind{Options: t}, func(b *registry.Builder, options any) (pipeline.Strategy, error) {
		return build(b, options.(O))
	}}
	if slices.ContainsFunc(model.FieldsOf(t), model.Field.IsName) {
		made.DefaultName = kind
	}
	k.strategies = with(k.strategies, kind, made)
}

// RegisterLimiter registers a kind of limiter; see [RegisterStrategy] for O. build is called for each version of a
// pipeline that uses such a limiter. name is the name that the limiter has in the file, or "pipeline/strategy" if the
// limiter is written in a strategy. To keep a limiter from one version to the next, build calls [registry.Keep] with
// that name; to release a limiter with its version, build calls [registry.Builder.OnDispose].
func RegisterLimiter[O any](k *Kinds, kind string, build func(b *registry.Builder, name string, o O) (limiter.Limiter, error)) {
	t := reflect.TypeFor[O]()
	taken := append(k.known().LimiterNames(), model.LimiterField, "name", "shadow", "permits", "handle", model.StoreField)
	if k.allows("limiter kind", kind, t, build == nil, taken) {
		k.limiters = with(k.limiters, kind, limiterKind{t, func(b *registry.Builder, name string, options any) (limiter.Limiter, error) {
			return build(b, name, options.(O))
		}})
	}
}

const sectionWhat = "section"

// allows reports whether a kind or section can be registered. If not, it records the reason.
func (k *Kinds) allows(what, kind string, options reflect.Type, isNil bool, taken []string) bool {
	problem := ""
	switch {
	case !document.PlainKey(kind):
		problem = "the name must have only letters, digits, _ and -"
	case isNil:
		problem = "the function is nil"
	case slices.Contains(taken, kind):
		problem = "the name is taken"
	case options.Kind() != reflect.Struct:
		problem = fmt.Sprintf("the options must be a struct, not %v", options)
	default:
		if err := model.Decodable(options, what == sectionWhat); err != nil {
			problem = fmt.Sprintf("%v; the tag %q keeps a field out of files", err, "-")
		}
	}
	if problem != "" {
		k.refuse("%s %q: %s", what, kind, problem)
	}
	return problem == ""
}

func (k *Kinds) refuse(format string, args ...any) { k.wrong.Add("", nil, format, args...) }

// ownKinds replaces nil Kinds. All files that are parsed with nil have this pointer, so that [File.Change] sees that
// their Kinds are the same.
var ownKinds = &Kinds{}

// known returns everything that a file can name.
func (k *Kinds) known() *model.Kinds {
	all := model.OwnKinds()
	for name, kind := range k.strategies {
		all.Strategies[name] = kind.StrategyKind
	}
	for name, kind := range k.limiters {
		all.Limiters[name] = kind.options
	}
	all.Sections = k.sections
	for what, registered := range k.functions {
		all.Functions[what] = slices.Sorted(maps.Keys(registered))
	}
	all.AcceptUnknown, all.OnlySections = k.acceptUnknown, k.onlySections
	return all
}

// ownSchema is made by a test, from testdata/schema/base.json, the types of the options, the comments of their fields and
// what their Validate methods refuse.
//
//go:embed schema.json
var ownSchema []byte

// Schema returns the JSON schema (draft 2020-12) of files with weir's own kinds, which is also the file
// reload/schema.json. Editors use it to complete and check a file. It accepts files that [Parse] refuses, because it
// does not compare fields with each other.
func Schema() []byte { return slices.Clone(ownSchema) }

// Schema returns [Schema] with the kinds and functions of k, for a program to give to its users.
func (k *Kinds) Schema() ([]byte, error) {
	k = cmp.Or(k, ownKinds)
	if err := k.wrong.Err("reload"); err != nil {
		return nil, err
	}
	return schema.Make(ownSchema, k.known())
}

// RegisterKey registers a function that a partitioned limiter can name as its key. The function gets the context of an
// execution and returns the key whose limiter decides.
func (k *Kinds) RegisterKey(name string, key func(ctx context.Context) string) {
	k.register(model.KeyFunction, name, key)
}

// RegisterHandle registers a function that a strategy can name as its handle. The function reports whether the outcome
// of an execution is a failure. A retry, a circuit breaker, a fallback, hedging and a rate limiter with an adaptive
// limiter can have a handle; see [github.com/weir-go/weir/strategies/retry.Options].
func (k *Kinds) RegisterHandle(name string, handle func(result any, err error) bool) {
	k.register(model.HandleFunction, name, handle)
}

// RegisterPermits registers a function that a rate limiter can name as its permits. The function returns how many
// permits an execution takes.
func (k *Kinds) RegisterPermits(name string, permits func(ctx context.Context) int) {
	k.register(model.PermitsFunction, name, permits)
}

// RegisterFallback registers an action that a fallback can name. The action returns what replaces a failed outcome.
// [fallback.Value] and [fallback.Func] make actions.
func (k *Kinds) RegisterFallback(name string, action fallback.Action) {
	k.register(model.FallbackAction, name, action)
}

// RegisterControl registers a control that circuit breakers can name. If several circuits have the same control, the
// program opens and closes them together.
func (k *Kinds) RegisterControl(name string, control *circuitbreaker.Control) {
	k.register(model.CircuitControl, name, control)
}

// RegisterError registers an error that a chaos_fault can name, which then returns it.
func (k *Kinds) RegisterError(name string, err error) {
	k.register(model.ChaosError, name, err)
}

// RegisterOutcome registers a function that a chaos_outcome can name as its outcome. The execution returns the result of
// the function instead of running. If ok is false, the execution runs.
func (k *Kinds) RegisterOutcome(name string, outcome func(ctx context.Context) (r chaos.Result, ok bool)) {
	k.register(model.ChaosOutcome, name, outcome)
}

// RegisterBehavior registers a function that a chaos_behavior can name as its behavior. The function is called before
// the execution runs. If the function returns an error, the execution does not run and returns that error.
func (k *Kinds) RegisterBehavior(name string, behavior func(ctx context.Context) error) {
	k.register(model.ChaosBehavior, name, behavior)
}

// RegisterStore registers a store that limiters can name. The store then holds the state of these limiters. The program
// closes s, after the registry.
func (k *Kinds) RegisterStore(name string, s *store.Store) {
	k.register(model.LimiterStore, name, s)
}

// register registers a function or value that a file can name.
func (k *Kinds) register(what model.Purpose, name string, thing any) {
	switch {
	case name == "":
		k.refuse("a %s needs a name", what)
	case isnil.Value(thing):
		k.refuse("the %s %q is nil", what, name)
	case strings.Contains(name, "/"):
		k.refuse("the %s %q: a name cannot have a slash", what, name)
	case k.functions[what][name] != nil:
		k.refuse("the %s %q is registered twice", what, name)
	default:
		k.functions = with(k.functions, what, with(k.functions[what], name, thing))
	}
}

// with returns m with one more entry; m can be nil.
func with[K comparable, V any](m map[K]V, key K, v V) map[K]V {
	if m == nil {
		m = make(map[K]V)
	}
	m[key] = v
	return m
}

// A thingName is the name of a function or value.
type thingName struct {
	what model.Purpose
	name string
}
