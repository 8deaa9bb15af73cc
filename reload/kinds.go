package reload

import (
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// Kinds are what a file can name: kinds of strategies and limiters, and functions
// of the program. The zero Kinds, and a nil one, have weir's own kinds and no
// functions. A program adds its own with [RegisterStrategy], [RegisterLimiter] and the
// methods of Kinds that take a name, before it gives the Kinds to [Parse] and not
// afterwards.
//
// What is wrong with a registration is reported by Parse, all of it at once. Kinds
// can be used by many goroutines as long as none registers.
type Kinds struct {
	strategies map[string]*strategyKind
	limiters   map[string]*limiterKind
	functions  map[purpose]map[string]any
	lenient    bool
	wrong      validate.Problems // of the registrations
}

// NewKinds returns Kinds with weir's own.
func NewKinds() *Kinds { return &Kinds{} }

// RegisterStrategy adds a kind of strategy, to be written as kind: {…}. O is the
// struct that its options are decoded into. A field is called what its yaml tag,
// or else its json tag, or else its name in snake case says; it is required unless
// the tag has omitempty; "-" keeps it out of files. Durations, numbers, texts,
// truth values, what has UnmarshalText, and structs, slices and maps of those can
// be decoded. A tag `reload:"off"` lets a field take "off" for -1. If O or *O has a
// method Validate() error, it is called with the decoded options. Each problem of a
// [weir.OptionsError] is reported where its field is written, any other error at the options.
//
// The first field called "name", if there is one, is taken for the name in
// telemetry: it must be unique in a pipeline. build runs for each version of a
// pipeline that has the strategy, when the registry builds that.
func RegisterStrategy[O any](k *Kinds, kind string, build func(b *registry.Builder, o O) (pipeline.Strategy, error)) {
	t := reflect.TypeFor[O]()
	if !k.allows("strategy", kind, t, build == nil, k.strategyNames()) {
		return
	}
	if k.strategies == nil {
		k.strategies = make(map[string]*strategyKind)
	}
	made := &strategyKind{
		options: t,
		build: func(b *registry.Builder, _ *Kinds, s *strategyModel) (pipeline.Strategy, error) {
			return build(b, s.options.(O))
		},
	}
	if slices.ContainsFunc(fieldsOf(t), func(f field) bool { return f.isName() }) {
		made.usual = kind
	}
	k.strategies[kind] = made
}

// RegisterLimiter adds a kind of limiter; for O see [RegisterStrategy]. build runs
// for each version of a pipeline that uses such a limiter, with the name that the
// limiter has in the file, or "pipeline/strategy" for one that is written in a
// strategy. Whatever must outlive a version is to be kept elsewhere, by that name;
// what need not is given to [registry.Builder.OnDispose].
func RegisterLimiter[O any](k *Kinds, kind string, build func(b *registry.Builder, name string, o O) (limiter.Limiter, error)) {
	if !k.allows("limiter", kind, reflect.TypeFor[O](), build == nil, append(k.limiterNames(), "limiter", "name", "shadow", "permits", "handle", storeField)) {
		return
	}
	if k.limiters == nil {
		k.limiters = make(map[string]*limiterKind)
	}
	k.limiters[kind] = limiterOf(build)
}

// allows tells whether a kind can be registered, and notes why not.
func (k *Kinds) allows(what, kind string, options reflect.Type, isNil bool, taken []string) bool {
	switch {
	case !plainKey(kind):
		k.refuse("%s kind %q: the name must be of letters, digits, _ and -", what, kind)
	case isNil:
		k.refuse("%s kind %q: the function is nil", what, kind)
	case slices.Contains(taken, kind):
		k.refuse("%s kind %q: the name is taken", what, kind)
	case options.Kind() != reflect.Struct:
		k.refuse("%s kind %q: the options must be a struct, not %v", what, kind, options)
	default:
		if err := decodable(options); err != nil {
			k.refuse("%s kind %q: %v; tag it %q", what, kind, err, "-")
			return false
		}
		return true
	}
	return false
}

func (k *Kinds) refuse(format string, args ...any) { k.wrong.Add("", nil, format, args...) }

// err returns a [weir.OptionsError] with everything that is wrong with the registrations, or nil.
func (k *Kinds) err() error {
	if k == nil {
		return nil
	}
	return k.wrong.Err("reload")
}

// ownKinds are what a nil Kinds stands for. It is one so that files can be compared.
var ownKinds = &Kinds{}

func (k *Kinds) orOwn() *Kinds {
	if k == nil {
		return ownKinds
	}
	return k
}

func (k *Kinds) strategy(kind string) *strategyKind {
	if own := ownStrategies[kind]; own != nil {
		return own
	}
	return k.strategies[kind]
}

func (k *Kinds) limiter(kind string) *limiterKind {
	if own := ownLimiters[kind]; own != nil {
		return own
	}
	return k.limiters[kind]
}

func (k *Kinds) strategyNames() []string {
	return append(slices.Sorted(maps.Keys(ownStrategies)), slices.Sorted(maps.Keys(k.strategies))...)
}

func (k *Kinds) limiterNames() []string {
	return append(slices.Sorted(maps.Keys(ownLimiters)), slices.Sorted(maps.Keys(k.limiters))...)
}

// accepts tells whether an unknown name is to be taken as one that the program
// will know.
func (k *Kinds) accepts(name string, known []string) bool {
	return k.lenient && nearest(name, known) == ""
}
