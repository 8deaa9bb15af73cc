package registry

import (
	"context"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// Shared returns the registry's limiter of that name in the store s. All instances of the program that use s share its
// permits. If how is nil, the defaults apply.
// Like that of [Builder.Limiter], it is shared by the pipelines that name it, kept across reloads, and closed when no
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
func Shared(b *Builder, s *store.Store, name string, o limiter.Options, how *store.LimiterOptions) *store.Limiter {
	return useShared(b, s, name, "shared ", o, how, (*store.Store).Limiter)
}

// SharedPartitioned is [Shared] for a limiter for each key. Use [limiter.Translate] to get the key from another
// resource, such as a request. Unlike [Partitioned] it needs no options for the partitions as a whole, because a key
// that is not in use costs nothing.
func SharedPartitioned(b *Builder, s *store.Store, name string, each limiter.Options, how *store.LimiterOptions) *store.Partitioned {
	return useShared(b, s, name, "shared partitioned ", each, how, (*store.Store).Partitioned)
}

// A sharedMaker makes a limiter in a store.
type sharedMaker[L any] func(s *store.Store, name string, o limiter.Options, how *store.LimiterOptions) (L, error)

// useShared returns the limiter of that name and kind and records that this build uses it. prefix is the beginning of
// the name of the kind.
func useShared[L storeLimiter](b *Builder, s *store.Store, name, prefix string, o limiter.Options, how *store.LimiterOptions, newLimiter sharedMaker[L]) L {
	identity := sharedIdentity{store: s}
	if how != nil {
		identity.how = *how
	}
	options := LimiterConfig{Limits: rate.Of(o), Shared: identity.how}
	invalid := store.Check(name, options.Limits, &identity.how)
	if s == nil {
		invalid = notSet("s")
	}
	want := resourceID{resourceKey{name: name}, prefix + kindName(options.Limits), identity}
	resources := &b.plan.registry.resources // the limiter can outlive the plan
	used, err := b.use(want, options, invalid, func() (*resource, error) {
		l, err := newLimiter(s, name, options.Limits, &identity.how)
		if err != nil {
			return nil, err
		}
		l.OnOverride(func(o store.Override) { resources.reportOverride(context.Background(), overrideInStore(name, o), nil) })
		// The store may be unavailable: the registry does not wait for it.
		later := func(o any) error { return l.ReconfigureLater(o.(LimiterConfig).Limits) }
		return &resource{value: l, inStore: l, reconfigure: later}, nil
	})
	return valueOf[L](b, used, err)
}
