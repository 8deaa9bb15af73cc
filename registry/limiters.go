package registry

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// kindName returns the name of the kind of a limiter.
func kindName(l rate.Limits) string { return strings.ReplaceAll(l.Kind.String(), "_", " ") }

// Limiter returns the registry's limiter of that name and of the kind of the options o: a [limiter.TokenBucket] for a
// [limiter.TokenBucketOptions], and so on. If there is none, it is made. If there is one, it stays, with what it has counted,
// and gets the options o when the version that is being built comes into force.
//
// Pipelines that use the same name share it, and so do the instances of a pipeline unless [Builder.Instance] is part
// of the name. If two pipelines give it different options, the build fails with [ErrLimiterConflict]. It is closed
// when no version uses it any more. If a reload asks for another kind of limiter under the same name, a new limiter
// is made, and the old one is closed when no version uses it.
//
// If the limiter cannot be made, the build fails, and Limiter returns nil.
func (b *Builder) Limiter(name string, o limiter.Options) limiter.Configurable {
	l := rate.Of(o)
	want := resourceID{resourceKey{name: name}, kindName(l), nil}
	used, err := b.use(want, LimiterConfig{Limits: l}, l.Validate(), func() (*resource, error) {
		made, err := limiter.New(l)
		return &resource{value: made, reconfigure: func(o any) error { return made.Reconfigure(o.(LimiterConfig).Limits) }}, err
	})
	return valueOf[limiter.Configurable](b, used, err)
}

// valueOf returns the value of what use has returned. If there is an error, the build fails, and the value is zero.
func valueOf[T any](b *Builder, used *resource, err error) (t T) {
	if err != nil {
		b.problem(err)
		return t
	}
	t, _ = used.value.(T) // T can be an interface and its value nil
	return t
}

// TokenBucket is [Builder.Limiter] for a token bucket.
func (b *Builder) TokenBucket(name string, o limiter.TokenBucketOptions) *limiter.TokenBucket {
	l, _ := b.Limiter(name, o).(*limiter.TokenBucket)
	return l
}

// FixedWindow is [Builder.Limiter] for a fixed window.
func (b *Builder) FixedWindow(name string, o limiter.FixedWindowOptions) *limiter.FixedWindow {
	l, _ := b.Limiter(name, o).(*limiter.FixedWindow)
	return l
}

// SlidingWindow is [Builder.Limiter] for a sliding window.
func (b *Builder) SlidingWindow(name string, o limiter.SlidingWindowOptions) *limiter.SlidingWindow {
	l, _ := b.Limiter(name, o).(*limiter.SlidingWindow)
	return l
}

// Concurrency is [Builder.Limiter] for a concurrency limiter.
func (b *Builder) Concurrency(name string, o limiter.ConcurrencyOptions) *limiter.Concurrency {
	l, _ := b.Limiter(name, o).(*limiter.Concurrency)
	return l
}

// A LimiterInfo describes a limiter of the registry.
type LimiterInfo struct {
	Name        string        // as given to the Builder
	Kind        string        // such as "token bucket"
	Partitioned bool          // it has the limits for each key
	Shared      bool          // its state is in a store
	Options     LimiterConfig // the options in force
	Configured  LimiterConfig // the options that the pipelines want; other than Options only during an override
	Override    *Override     // nil if the limits are not overridden
	Limiter     any           // such as a *limiter.TokenBucket or a *store.Limiter
	Pipelines   []string      // the pipelines that use it, each as name or name/instance, sorted
}

// Limiters yields the limiters that versions in force use, sorted by name.
func (r *Registry) Limiters() iter.Seq2[string, LimiterInfo] {
	return func(yield func(string, LimiterInfo) bool) {
		infos := make(map[string]*LimiterInfo)
		r.mu.Lock()
		for _, i := range r.pipelines.inForce() {
			for key, u := range i.current.uses {
				if u.id.isKept() {
					continue
				}
				if infos[key.name] == nil {
					infos[key.name] = u.info()
				}
				infos[key.name].Pipelines = append(infos[key.name].Pipelines, i.String())
			}
		}
		r.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(infos)) {
			if !yield(name, *infos[name]) {
				return
			}
		}
	}
}

// info describes the limiter, without its pipelines.
func (res *resource) info() *LimiterInfo {
	o := res.options.(LimiterConfig)
	_, keyed := res.value.(*store.Partitioned)
	i := &LimiterInfo{
		Name: res.id.name, Kind: res.id.kind, Partitioned: keyed || res.partitioned != nil, Shared: res.inStore != nil,
		Options: o, Configured: o, Limiter: res.value,
	}
	if i.Override = res.overridden(); i.Override != nil {
		i.Options.Limits = rate.Of(i.Override.Options)
	}
	return i
}

// use returns the resource with that id and records that this version uses it. If there is none, fresh makes it: no other build
// runs meanwhile. invalid is what is wrong with the options: when an existing resource gets them, the build can no longer fail.
func (b *Builder) use(want resourceID, options any, invalid error, fresh func() (*resource, error)) (*resource, error) {
	switch u := b.version.uses[want.resourceKey]; {
	case invalid != nil:
		return nil, fmt.Errorf("%v: %w", want.resourceKey, invalid)
	case want.name == "":
		return nil, fmt.Errorf("a %s of the registry needs a name", want.kind)
	case u != nil && (u.id != want || u.wanted != options):
		return nil, conflict(b.version.instance.id, u, b.version.instance.id, &resourceUse{resource: &resource{id: want}, wanted: options})
	case u != nil:
		return u.resource, nil
	}
	r := &b.plan.registry.resources
	r.mu.Lock()
	used := r.all[want]
	if used != nil {
		used.users++
	}
	r.mu.Unlock()
	if used == nil {
		var err error
		if used, err = fresh(); err != nil {
			return nil, fmt.Errorf("%v: %w", want.resourceKey, err)
		}
		used.id, used.options, used.users = want, options, 1
		r.mu.Lock()
		r.all[want] = used
		r.mu.Unlock()
	}
	b.version.uses[want.resourceKey] = &resourceUse{resource: used, wanted: options}
	return used, nil
}
