package reload

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/model"
)

// What is in this file serves tools that look at files of programs that they are not, such as weir's own command
// cmd/weir. A program that runs its pipelines needs none of it.

// AcceptUnknown is for tools: kinds and functions that are not registered are accepted, and the options of such kinds
// are not checked. A kind whose name is close to a known one still counts as misspelt. A [File] that has any can be
// explained and compared, but building a pipeline that needs one fails.
func (k *Kinds) AcceptUnknown() { k.lenient = true }

// Assume is for tools: a file can name something as if the program had registered it. what is one of [Registrations].
// Building a pipeline that needs it fails. With [Kinds.AcceptUnknown] a tool need not know the names.
func (k *Kinds) Assume(what, name string) {
	p, ok := registrations[what]
	if !ok {
		k.refuse("there is nothing to register as %q, there are %s", what, strings.Join(Registrations(), ", "))
		return
	}
	k.register(p, name, assumed{})
}

// Registrations is for tools: it returns what [Kinds.Assume] takes, sorted. Each is the name of a Register method of
// [Kinds] without "Register", in small letters, such as "handle" for [Kinds.RegisterHandle].
func Registrations() []string { return slices.Sorted(maps.Keys(registrations)) }

// registrations are the purposes by what [Registrations] calls them.
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
