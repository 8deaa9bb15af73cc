package reload

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/reload/internal/filewatch"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
)

// The functions of this file are for tools that check or run a file without the program that it is for, such as the command
// cmd/weir. A program that runs pipelines does not need them.

// AcceptUnknown is for tools: kinds and functions that are not registered are accepted, and the options of such kinds
// are not checked. A kind whose name is close to a known one still counts as misspelt. A [File] with unknown names can
// be explained and compared, but building a pipeline that needs one of them fails.
func (k *Kinds) AcceptUnknown() { k.acceptUnknown = true }

// Assume is for tools: a file can use name as if the program had registered a function or value under it. The parameter
// what says what the function or value is for; [Registrations] returns the possible values. Building a pipeline that
// needs the function or value fails. After [Kinds.AcceptUnknown], Assume is not needed.
func (k *Kinds) Assume(what, name string) {
	r, ok := registrations[what]
	if !ok {
		k.refuse("%q cannot be registered; must be one of %s", what, strings.Join(Registrations(), ", "))
		return
	}
	k.register(r.purpose, name, assumed{})
}

// Resolve is for tools that run pipelines of a file without its program. If a pipeline that is built needs a function or
// value that is not registered, or that [Kinds.Assume] has named, it gets what resolve returns. The parameter what is one
// of [Registrations], and thing is what the Register method takes. If thing is nil, the pipeline is built as if the file
// did not give the name. If ok is false, the pipeline cannot be built.
//
// Resolve does not make [Parse] accept the names: that is up to [Kinds.AcceptUnknown] and [Kinds.Assume]. It does not
// resolve kinds. resolve is called once for each name.
func (k *Kinds) Resolve(resolve func(what, name string) (thing any, ok bool)) {
	k.resolve = resolve
}

// OnlySections is for tools that have a file of their own, decoded as strictly as that of a program: a file has only the
// fields that are registered with [RegisterSection], and neither limiters nor budgets nor pipelines.
func (k *Kinds) OnlySections() { k.onlySections = true }

// MaxFileSize is for tools whose files can be large: it sets how many bytes a file can have at most. Without it, that is
// 1 MiB; it can be up to 8 MiB, because a [Watcher] reads no larger file. [Parse] needs memory of about 50 times the size of
// the file, and of some hundred times if its values are short.
func (k *Kinds) MaxFileSize(bytes int) {
	if bytes < 1 || bytes > filewatch.MaxSize {
		k.refuse("MaxFileSize must be from 1 to %d, got %d", filewatch.MaxSize, bytes)
		return
	}
	k.maxFileSize = bytes
}

// Registrations is for tools: it returns what can be passed to [Kinds.Assume] as the parameter what, sorted. Each is
// the name of a Register method of [Kinds] without "Register", in lower case, such as "handle" for
// [Kinds.RegisterHandle].
func Registrations() []string { return slices.Sorted(maps.Keys(registrations)) }

// registrations has what each element of [Registrations] stands for.
var registrations = map[string]registration{
	"key":      {model.KeyFunction, reflect.TypeFor[func(context.Context) string]()},
	"handle":   {model.HandleFunction, reflect.TypeFor[func(any, error) bool]()},
	"permits":  {model.PermitsFunction, reflect.TypeFor[func(context.Context) int]()},
	"fallback": {model.FallbackAction, reflect.TypeFor[fallback.Action]()},
	"control":  {model.CircuitControl, reflect.TypeFor[*circuitbreaker.Control]()},
	"error":    {model.ChaosError, reflect.TypeFor[error]()},
	"outcome":  {model.ChaosOutcome, reflect.TypeFor[func(context.Context) (chaos.Result, bool)]()},
	"behavior": {model.ChaosBehavior, reflect.TypeFor[func(context.Context) error]()},
	"store":    {model.LimiterStore, reflect.TypeFor[*store.Store]()},
}

// A registration is what a Register method of [Kinds] registers.
type registration struct {
	purpose model.Purpose
	typ     reflect.Type
}

// assumed stands for a function or value that only the program has.
type assumed struct{}

// find returns what the program has registered under that name, or else what [Kinds.Resolve] makes of the name.
func (k *Kinds) find(n thingName) (any, error) {
	registered := k.functions[n.what][n.name]
	if _, isAssumed := registered.(assumed); registered != nil && !isAssumed {
		return registered, nil
	}
	once, _ := k.resolved.LoadOrStore(n, sync.OnceValues(func() (any, error) { return ask(k.resolve, n) }))
	return once.(func() (any, error))()
}

// ask calls the function of Resolve, and checks what it returns.
func ask(resolve func(what, name string) (thing any, ok bool), n thingName) (any, error) {
	for text, r := range registrations {
		if r.purpose != n.what || resolve == nil || n.name == "" {
			continue
		}
		thing, ok := resolve(text, n.name)
		switch v := reflect.ValueOf(thing); {
		case !ok:
		case isnil.Value(thing):
			return nil, nil
		case !v.Type().AssignableTo(r.typ):
			return nil, fmt.Errorf("the %s %q is resolved to a value of the type %T, must be a %v", n.what, n.name, thing, r.typ)
		default:
			return v.Convert(r.typ).Interface(), nil // a value of a func type of its own becomes one that named finds
		}
	}
	return nil, fmt.Errorf("there is no %s %q", n.what, n.name)
}
