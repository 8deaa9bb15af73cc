package reload

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
)

// A purpose is what something of the program's is registered for, in the words of
// messages. Things for different purposes may have the same name.
type purpose string

const (
	keyFunction     purpose = "key function"
	handleFunction  purpose = "handle function"
	permitsFunction purpose = "permits function"
	fallbackAction  purpose = "fallback action"
	circuitControl  purpose = "circuit control"
	chaosError      purpose = "chaos error"
	chaosOutcome    purpose = "chaos outcome"
	chaosBehavior   purpose = "chaos behavior"
	limiterStore    purpose = "store"
)

// Key adds a function that a partitioned limiter can name as its key: it finds in
// the context of an execution whose limiter is to be asked.
func (k *Kinds) Key(name string, key func(ctx context.Context) string) {
	k.register(keyFunction, name, key)
}

// Handle adds a function that a strategy can name as its handle, which says what a
// failure is to it: a retry, a circuit breaker, a fallback, hedging, and a rate limiter that adapts, see
// [github.com/weir-go/weir/strategies/retry.Options].
func (k *Kinds) Handle(name string, handle func(result any, err error) bool) {
	k.register(handleFunction, name, handle)
}

// Permits adds a function that a rate limiter can name as its permits: what an
// execution costs.
func (k *Kinds) Permits(name string, permits func(ctx context.Context) int) {
	k.register(permitsFunction, name, permits)
}

// Fallback adds what a fallback can name as its action: it finds something to put in
// the place of what failed. [fallback.Value] and [fallback.Func] make actions.
func (k *Kinds) Fallback(name string, action fallback.Action) {
	k.register(fallbackAction, name, action)
}

// Control adds what a circuit breaker can name as its control: with it the program
// opens and closes the circuits of all that name it.
func (k *Kinds) Control(name string, control *circuitbreaker.Control) {
	k.register(circuitControl, name, control)
}

// Error adds what a chaos_fault can name as its error.
func (k *Kinds) Error(name string, err error) {
	k.register(chaosError, name, err)
}

// Outcome adds a function that a chaos_outcome can name as its outcome: it makes up
// what is returned. If ok is false nothing is injected.
func (k *Kinds) Outcome(name string, outcome func(ctx context.Context) (r chaos.Result, ok bool)) {
	k.register(chaosOutcome, name, outcome)
}

// Behavior adds a function that a chaos_behavior can name as its behavior: it does
// something before the call. If it returns an error there is no call.
func (k *Kinds) Behavior(name string, behavior func(ctx context.Context) error) {
	k.register(chaosBehavior, name, behavior)
}

// Store adds what a limiter can name as its store, in which its state then is. It stays the
// program's, which closes it after the registry.
func (k *Kinds) Store(name string, s *store.Store) {
	k.register(limiterStore, name, s)
}

// register adds something that a file can name.
func (k *Kinds) register(what purpose, name string, thing any) {
	switch {
	case name == "":
		k.refuse("a %s needs a name", what)
	case isnil.Value(thing):
		k.refuse("the %s %q is nil", what, name)
	case k.functions[what][name] != nil:
		k.refuse("there is a %s %q already", what, name)
	default:
		k.functions = with(k.functions, what, with(k.functions[what], name, thing))
	}
}

// registrations are the purposes by the methods of Kinds, in small letters.
var registrations = map[string]purpose{
	"key":      keyFunction,
	"handle":   handleFunction,
	"permits":  permitsFunction,
	"fallback": fallbackAction,
	"control":  circuitControl,
	"error":    chaosError,
	"outcome":  chaosOutcome,
	"behavior": chaosBehavior,
	"store":    limiterStore,
}

// Registrations returns what [Kinds.Assume] takes.
func Registrations() []string { return keysOf(registrations) }

// Assume is for tools that look at files of programs that they are not: a file can
// name it as if the program had registered it. what is the method of Kinds that the
// program does it with, in small letters, such as "handle". A pipeline that needs it
// cannot be built. See [Kinds.AcceptUnknown] for names that the tool does not know.
func (k *Kinds) Assume(what, name string) {
	p, ok := registrations[what]
	if !ok {
		k.refuse("there is nothing to register as %q, there are %s", what, strings.Join(Registrations(), ", "))
		return
	}
	k.register(p, name, assumed{})
}

// assumed stands for something of a program's that is not there.
type assumed struct{}

// with returns m with an entry more; m may be nil.
func with[K comparable, V any](m map[K]V, key K, v V) map[K]V {
	if m == nil {
		m = make(map[K]V)
	}
	m[key] = v
	return m
}

// registered returns what the program registered. Of a file that was read with
// [Kinds.AcceptUnknown] it may not be there.
func registered[F any](k *Kinds, what purpose, name string) (F, error) {
	f, ok := k.functions[what][name].(F)
	if !ok {
		return f, fmt.Errorf("there is no %s %q", what, name)
	}
	return f, nil
}

// handle returns the handle function of that name, nil for no name.
func (k *Kinds) handle(name string) (func(any, error) bool, error) {
	if name == "" {
		return nil, nil
	}
	return registered[func(any, error) bool](k, handleFunction, name)
}

// function checks the name of something of the program's.
func (d *decoder) function(n *node, path string, what purpose) {
	known := d.kinds.functions[what]
	if known[n.text] != nil || d.kinds.lenient {
		return
	}
	d.add(n, path, "the program has registered no %s %s, %s", what, shortened(n.text), d.instead(n.text, keysOf(known), "nor any other"))
}
