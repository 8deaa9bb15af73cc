package reload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// Kinds are what a file can name: kinds of strategies and limiters, and functions
// of the program. The zero Kinds, and a nil one, have weir's own kinds and no
// functions. A program adds its own with [RegisterStrategy], [RegisterLimiter],
// [Kinds.Key], [Kinds.Handle] and [Kinds.Permits], before it gives the Kinds to
// [Parse] and not afterwards.
//
// What is wrong with a registration is reported by Parse, all of it at once. Kinds
// can be used by many goroutines as long as none registers.
type Kinds struct {
	strategies map[string]*strategyKind
	limiters   map[string]*limiterKind
	keys       map[string]func(context.Context) string
	handles    map[string]func(any, error) bool
	permits    map[string]func(context.Context) int
	lenient    bool
	wrong      []error
}

// NewKinds returns Kinds with weir's own.
func NewKinds() *Kinds { return &Kinds{} }

// RegisterStrategy adds a kind of strategy, to be written as kind: {…}. O is the
// struct that its options are decoded into. A field is called what its yaml tag,
// or else its json tag, or else its name in snake case says; it is required unless
// the tag has omitempty; "-" keeps it out of files. Durations, numbers, texts,
// truth values, what has UnmarshalText, and structs, slices and maps of those can
// be decoded. A tag `reload:"off"` lets a field take "off" for -1. If O or *O has a
// Validate method it is asked, and an error that names a field, as weir's own do,
// is reported where that is written.
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
	if !k.allows("limiter", kind, reflect.TypeFor[O](), build == nil, append(k.limiterNames(), "limiter", "name", "shadow", "permits")) {
		return
	}
	if k.limiters == nil {
		k.limiters = make(map[string]*limiterKind)
	}
	k.limiters[kind] = limiterOf(build)
}

// Key adds a function that a partitioned limiter can name as its key: it finds in
// the context of an execution whose limiter is to be asked.
func (k *Kinds) Key(name string, key func(ctx context.Context) string) {
	if k.allowsFunction("key", name, key == nil, k.keys[name] != nil) {
		k.keys = with(k.keys, name, key)
	}
}

// Handle adds a function that a retry can name as its handle, see
// [github.com/weir-go/weir/strategies/retry.Options].
func (k *Kinds) Handle(name string, handle func(result any, err error) bool) {
	if k.allowsFunction("handle", name, handle == nil, k.handles[name] != nil) {
		k.handles = with(k.handles, name, handle)
	}
}

// Permits adds a function that a rate limiter can name as its permits: what an
// execution costs.
func (k *Kinds) Permits(name string, permits func(ctx context.Context) int) {
	if k.allowsFunction("permits", name, permits == nil, k.permits[name] != nil) {
		k.permits = with(k.permits, name, permits)
	}
}

// AcceptUnknown is for tools that look at files of programs that they are not:
// functions and kinds that are not registered are accepted, and the options of such
// kinds are not looked at. A kind whose name is close to a known one still counts
// as misspelt. A [File] that has any can be explained and compared, but building a
// pipeline that needs one fails.
func (k *Kinds) AcceptUnknown() { k.lenient = true }

func with[F any](m map[string]F, name string, f F) map[string]F {
	if m == nil {
		m = make(map[string]F)
	}
	m[name] = f
	return m
}

func (k *Kinds) allowsFunction(what, name string, isNil, taken bool) bool {
	switch {
	case name == "":
		k.refuse("a %s function needs a name", what)
	case isNil:
		k.refuse("the %s function %q is nil", what, name)
	case taken:
		k.refuse("there is a %s function %q already", what, name)
	default:
		return true
	}
	return false
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
			k.refuse("%s kind %q: %w; tag it %q", what, kind, err, "-")
			return false
		}
		return true
	}
	return false
}

func (k *Kinds) refuse(format string, args ...any) {
	k.wrong = append(k.wrong, fmt.Errorf("reload: "+format, args...))
}

// err returns what is wrong with the registrations.
func (k *Kinds) err() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.wrong...)
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
