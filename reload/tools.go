package reload

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/model"
)

// The functions of this file are for tools that check a file without the program that runs it, such as the command
// cmd/weir. A program that runs pipelines does not need them.

// AcceptUnknown is for tools: kinds and functions that are not registered are accepted, and the options of such kinds
// are not checked. A kind whose name is close to a known one still counts as misspelt. A [File] with unknown names can
// be explained and compared, but building a pipeline that needs one of them fails.
func (k *Kinds) AcceptUnknown() { k.acceptUnknown = true }

// Assume is for tools: a file can use name as if the program had registered a function or value under it. The parameter
// what says what the function or value is for; [Registrations] returns the possible values. Building a pipeline that
// needs the function or value fails. After [Kinds.AcceptUnknown], Assume is not needed.
func (k *Kinds) Assume(what, name string) {
	p, ok := registrations[what]
	if !ok {
		k.refuse("%q cannot be registered; must be one of %s", what, strings.Join(Registrations(), ", "))
		return
	}
	k.register(p, name, assumed{})
}

// Registrations is for tools: it returns what can be passed to [Kinds.Assume] as the parameter what, sorted. Each is
// the name of a Register method of [Kinds] without "Register", in lower case, such as "handle" for
// [Kinds.RegisterHandle].
func Registrations() []string { return slices.Sorted(maps.Keys(registrations)) }

// registrations has the purpose of each element of [Registrations].
var registrations = map[string]model.Purpose{
	"key":      model.KeyFunction,
	"handle":   model.HandleFunction,
	"permits":  model.PermitsFunction,
	"fallback": model.FallbackAction,
	"control":  model.CircuitControl,
	"error":    model.ChaosError,
	"outcome":  model.ChaosOutcome,
	"behavior": model.ChaosBehavior,
	"store":    model.LimiterStore,
}

// assumed stands for a function or value that only the program has.
type assumed struct{}
