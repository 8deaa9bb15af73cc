package reload

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
)

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

// resolve finds the functions and values that the options name, for named. Without [Kinds.AcceptUnknown] and
// [Kinds.Assume], Parse has refused names that there are not.
func (b builder) resolve(options any) error {
	v := reflect.ValueOf(options)
	for _, f := range model.FieldsOf(v.Type()) {
		if f.Purpose == "" {
			continue
		}
		name := v.FieldByIndex(f.Index).String()
		if name == "" && !f.Required {
			continue
		}
		thing, err := b.find(f.Purpose, name)
		if err != nil {
			return err
		}
		b.found[thingName{f.Purpose, name}] = thing
	}
	return nil
}

// A thingName is the name of a function or value.
type thingName struct {
	what model.Purpose
	name string
}

// find returns what a section of the file makes under that name or, if none gives the name, what the program has registered.
func (b builder) find(what model.Purpose, name string) (any, error) {
	given, ok := b.file.content.Names.Given[what][name]
	if !ok {
		return b.file.kinds.find(thingName{what, name})
	}
	thing, err := given.New()
	if err == nil && isnil.Value(thing) {
		err = errors.New("it is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("the %s %q: %w", what, name, err)
	}
	return thing, nil
}

// named returns what resolve has found, or the zero F for an empty name.
func named[F any](b builder, what model.Purpose, name string) F {
	f, _ := b.found[thingName{what, name}].(F)
	return f
}
