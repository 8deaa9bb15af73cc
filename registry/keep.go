package registry

import (
	"fmt"
	"reflect"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
)

// A Kept describes a kind of value whose state outlives the version for which it was made, such as a budget, a
// circuit breaker, or a limiter of the program. See [Keep].
type Kept[T any, O comparable] struct {
	// Kind is the word for it in errors, such as "budget". Values of different kinds can have the same name. It must
	// be set.
	Kind string
	// Make makes a value with the options o. If the value has a Close method, the registry calls it when no version
	// uses the value any more. Make must be set.
	Make func(o O) (T, error)
	// Reconfigure gives an existing T other options, or returns an error and leaves it as it was. While it runs, other changes
	// of limiters and kept values wait. If Reconfigure is nil, other options make another T.
	Reconfigure func(t T, o O) error
}

func (k Kept[T, O]) validate() error {
	var p validate.Problems
	if k.Kind == "" {
		p.Add("Kept.Kind", nil, "must be set")
	}
	if k.Make == nil {
		p.Add("Kept.Make", nil, "must be set")
	}
	return p.Err("registry")
}

// A keptIdentity is the identity of a kept value in its resourceID. It is comparable.
type keptIdentity struct {
	types   reflect.Type // the type of the Kept, because two of them can have the same Kind
	options any          // the options if Kept.Reconfigure is nil, so that other options make another value; else nil
}

// Keep returns the registry's T of that name and kind. If there is none, it is made. If there is one, it stays, and
// gets the options o when the version that is being built comes into force. Like [Builder.TokenBucket], it is shared
// by the pipelines that name it, its options must be the same in all of them, and it is closed when no version uses
// it any more. Limiters, and values of another kind, can have the same name.
//
// Options are compared with ==, so a field of an interface type must hold a comparable value, and no number may be
// NaN. Errors name fields of the options, but not their values, which may be secret. Make, Reconfigure and Close run
// without a lock of the registry. They must not wait for a change or an override of the registry, or remove an instance, which can
// wait for them.
//
// If T cannot be made, the build fails, and Keep returns the zero T.
func Keep[T any, O comparable](b *Builder, name string, o O, k Kept[T, O]) T {
	var none T
	if err := k.validate(); err != nil {
		b.problem(err)
		return none
	}
	key := resourceKey{k.Kind, name}
	if !reflect.ValueOf(&o).Elem().Comparable() || o != o { //nolint:gocritic // a NaN is not equal to itself
		b.problem(fmt.Errorf("%v: its options cannot be compared: a field holds a slice, a map, a function or a NaN", key))
		return none
	}
	identity := keptIdentity{types: reflect.TypeFor[Kept[T, O]]()}
	if k.Reconfigure == nil {
		identity.options = o
	}
	used, err := b.use(resourceID{key, k.Kind, identity}, o, nil, func() (*resource, error) {
		made, err := k.Make(o)
		return &resource{value: made, reconfigure: func(o any) error {
			return recovered.Error(func() error { return k.Reconfigure(made, o.(O)) })
		}}, err
	})
	return valueOf[T](b, used, err)
}
