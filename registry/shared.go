package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// SharedOptions are the [LimiterInfo.Options] of a limiter whose state is in a store.
type SharedOptions[O LimiterOptions] struct {
	// Limits are the limits that the pipelines name or, in LimiterInfo.Options during an override, those of the override.
	// They can change in place. An instance that was reconfigured later may have set other limits in the store.
	Limits O
	// How are the other options. If they change, another limiter is made.
	How store.LimiterOptions
}

// Shared returns the registry's limiter of that name in the store s. All instances of the program that use s share its
// permits. If o is a [limiter.TokenBucketOptions], it is a token bucket, and so on. If how is nil, it has its defaults.
// Like [Builder.TokenBucket], it is shared by the pipelines that name it, kept across reloads, and closed when no
// version uses it. The program closes s, after the registry.
//
// The limits of a new limiter are set in the store when the limiter is first used. If a reload changes the limits of
// an existing one, they are set when the version that is being built comes into force, for all instances. A reload
// does not wait for the store and does not fail while the store is unavailable: the limits are set when it is
// available again. Limits that do not change are not set again, so that an instance that is reloaded does not undo
// what another one has set.
//
// Another store, another how or another kind makes another limiter. In the same store it finds what the old one has
// left there, so that no permit is granted twice. Each has a queue of its own, and permits that the old one has
// borrowed (see [store.LimiterOptions]) stay with it until they are used or returned. The old one is closed when no
// version uses it.
//
// A reload that changes the kind or the store also sets the limits. If one of the two kinds is a concurrency limiter,
// instances that are not reloaded yet reject until they are, and report [store.Overruled].
//
// [Options.ObserveLimiter] gets this limiter. Each call of its Statistics is a round trip of at most
// [store.Options.CallTimeout]; while the store is unavailable it returns the last known figures. All instances report
// the same permits: read one of them, not the sum.
func Shared[O LimiterOptions](b *Builder, s *store.Store, name string, o O, how *store.LimiterOptions) *store.Limiter[O] {
	return useShared(b, s, name, "shared ", o, how, kindOf[O]().makeShared)
}

// SharedPartitioned is [Shared] for a limiter for each key. Use [limiter.Translate] to get the key from another
// resource, such as a request. Unlike [Partitioned] it needs no options for the partitions as a whole, because a key
// that is not in use costs nothing.
func SharedPartitioned[O LimiterOptions](b *Builder, s *store.Store, name string, each O, how *store.LimiterOptions) *store.Partitioned[O] {
	return useShared(b, s, name, "shared partitioned ", each, how, kindOf[O]().makePartitioned)
}

func (o SharedOptions[O]) limits() any { return o.Limits }

// setSharedLimits sets the limits of each limiter in a store that replaces an old limiter of the same name, if the
// kind, the store or the limits have changed: a reload changes limits on purpose, while the first use of a limiter
// must not restore old ones. It is called before the versions that use the limiters are in force. The caller holds
// r.mu.
func (r *Registry) setSharedLimits(c staged) {
	was := make(map[resourceKey]*resourceUse)
	replaced := func(v *version) {
		if v != nil {
			maps.Copy(was, v.uses)
		}
	}
	for _, name := range c.remove {
		for _, i := range r.definitions[name].instances {
			replaced(i.current)
		}
	}
	for _, v := range c.versions {
		replaced(v.instance.current)
	}
	for _, v := range c.versions {
		for key, u := range v.uses {
			if old := was[key]; u.inStore != nil && old != nil && !old.sameLimits(u) {
				_ = u.reconfigure(u.options) // fails only if the store is closed
			}
		}
	}
}

// sameLimits reports whether old has set the limits of u already.
func (old *resourceUse) sameLimits(u *resourceUse) bool {
	if old.resource == u.resource {
		return true
	}
	if old.inStore == nil || old.id.kind != u.id.kind || old.id.identity.(sharedIdentity).store != u.id.identity.(sharedIdentity).store {
		return false
	}
	type limited interface{ limits() any }
	return old.options.(limited).limits() == u.options.(limited).limits()
}

// A sharedIdentity is the identity of a limiter in a store in its resourceID.
type sharedIdentity struct {
	store *store.Store
	how   store.LimiterOptions
}

var _ map[sharedIdentity]bool // it is comparable

// storeLimiter is what the registry needs of a limiter in a store.
type storeLimiter[O LimiterOptions] interface {
	ReconfigureLater(o O) error
	Override(o store.Override[O]) error
	EndOverride(by string) error
	Overridden() (store.Override[O], bool)
	OnOverride(f func(store.Override[O]))
	Close() error
}

// A sharedMaker makes a limiter in a store.
type sharedMaker[L any, O LimiterOptions] func(s *store.Store, name string, o O, how *store.LimiterOptions) (L, error)

// useShared returns the limiter of that name and kind and records that this build uses it. prefix is the beginning of
// the name of the kind.
func useShared[L storeLimiter[O], O LimiterOptions](b *Builder, s *store.Store, name, prefix string, o O, how *store.LimiterOptions, newLimiter sharedMaker[L, O]) L {
	identity := sharedIdentity{store: s}
	if how != nil {
		identity.how = *how
	}
	var err error
	if s == nil {
		err = notSet("s")
	} else {
		// Also for an existing limiter: when it gets the options, the build can no longer fail.
		err = store.Check(name, o, &identity.how)
	}
	if err != nil {
		b.problem(fmt.Errorf("limiter %q: %w", name, err))
		return placeholderShared(newLimiter)
	}
	wanted := newResourceID(name, prefix+kindName(o), identity)
	used, err := b.useResource(wanted, SharedOptions[O]{o, identity.how}, func() (*resource, error) {
		l, err := newLimiter(s, name, o, &identity.how)
		if err != nil {
			return nil, fmt.Errorf("limiter %q: %w", name, err)
		}
		l.OnOverride(func(o store.Override[O]) { b.registry.reportInStore(overrideOf(name, o)) })
		limits := sharedLimits[O]{name: name, how: identity.how, limiter: l}
		return &resource{value: l, limits: limits, inStore: limits, reconfigure: func(o any) error {
			// The store may be unavailable: the registry does not wait for it.
			return l.ReconfigureLater(o.(SharedOptions[O]).Limits)
		}}, nil
	})
	if err != nil {
		b.problem(err)
		return placeholderShared(newLimiter)
	}
	return used.value.(L)
}

// placeholderShared returns a limiter of a closed store in place of one that could not be made, so that the build
// function can go on.
func placeholderShared[L any, O LimiterOptions](newLimiter sharedMaker[L, O]) L {
	s := weir.Must(store.New(noBackend{}, nil))
	l, _ := newLimiter(s, "none", kindOf[O]().valid, nil)
	_ = s.Close()
	return l
}

// noBackend is the backend of placeholders.
type noBackend struct{ backend.Backend }

var errNoStore = errors.New("registry: there is no store")

func (noBackend) Load(context.Context, string) (*backend.Definition, int64, error) {
	return nil, 0, errNoStore
}

func (noBackend) Close() error { return nil }
