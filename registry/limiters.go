package registry

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// LimiterOptions are what pipelines want of a limiter of the registry.
type LimiterOptions struct {
	// Limits are the limits; of a partitioned limiter, those of each key.
	Limits rate.Limits
	// Partitions are the options of the partitions as a whole, if the limiter is partitioned and in this process.
	Partitions limiter.PartitionedOptions
	// Shared are the other options of a limiter whose state is in a store. If they change, another limiter is made.
	Shared store.LimiterOptions
}

// String returns the options as errors and events show them, without zero ones.
func (o LimiterOptions) String() string {
	text := fmt.Sprintf("%+v", limiter.OptionsOf(o.Limits))
	if o.Partitions != (limiter.PartitionedOptions{}) {
		text += fmt.Sprintf(" %+v", o.Partitions)
	}
	if o.Shared != (store.LimiterOptions{}) {
		text += fmt.Sprintf(" %+v", o.Shared)
	}
	return text
}

// kindName returns the name of the kind of a limiter. ManualReplenishment cannot change on an existing limiter, so
// limiters with and without it are of different kinds.
func kindName(l rate.Limits) string {
	name := strings.ReplaceAll(l.Kind.String(), "_", " ")
	if l.Manual {
		return name + ", replenished by hand"
	}
	return name
}

// Limiter returns the registry's limiter of that name and of the kind of the options o: a [limiter.TokenBucket] for a
// [limiter.TokenBucketOptions], and so on. If there is none, it is made. If there is one, it stays, with what it has counted,
// and gets the options o when the version that is being built comes into force.
//
// Pipelines that use the same name share it, and so do the instances of a pipeline unless [Builder.Instance] is part
// of the name. If two pipelines give it different options, the build fails with [ErrLimiterConflict]. It is closed
// when no version uses it any more. If a reload asks for another kind of limiter under the same name, a new limiter
// is made, and the old one is closed when no version uses it; the same holds for another ManualReplenishment, which
// cannot change on an existing limiter.
//
// If the options are invalid, the build fails, and the limiter that is returned must not be used after the build.
func (b *Builder) Limiter(name string, o limiter.Options) limiter.Configurable {
	l := rate.Of(o)
	want := resourceID{resourceKey{name: name}, kindName(l), nil}
	used, err := b.use(want, LimiterOptions{Limits: l}, l.Validate(), func() (*resource, error) {
		made, err := limiter.New(l)
		return &resource{value: made, reconfigure: func(o any) error { return made.Reconfigure(o.(LimiterOptions).Limits) }}, err
	})
	if err != nil {
		b.problem(err)
		return weir.Must(limiter.New(rate.Example(l.Kind)))
	}
	return used.value.(limiter.Configurable)
}

// TokenBucket is [Builder.Limiter] for a token bucket.
func (b *Builder) TokenBucket(name string, o limiter.TokenBucketOptions) *limiter.TokenBucket {
	return b.Limiter(name, o).(*limiter.TokenBucket)
}

// FixedWindow is [Builder.Limiter] for a fixed window.
func (b *Builder) FixedWindow(name string, o limiter.FixedWindowOptions) *limiter.FixedWindow {
	return b.Limiter(name, o).(*limiter.FixedWindow)
}

// SlidingWindow is [Builder.Limiter] for a sliding window.
func (b *Builder) SlidingWindow(name string, o limiter.SlidingWindowOptions) *limiter.SlidingWindow {
	return b.Limiter(name, o).(*limiter.SlidingWindow)
}

// Concurrency is [Builder.Limiter] for a concurrency limiter.
func (b *Builder) Concurrency(name string, o limiter.ConcurrencyOptions) *limiter.Concurrency {
	return b.Limiter(name, o).(*limiter.Concurrency)
}

// A LimiterInfo describes a limiter of the registry.
type LimiterInfo struct {
	Name       string         // as given to the Builder
	Kind       string         // such as "token bucket"
	Options    LimiterOptions // the options in force
	Configured LimiterOptions // the options that the pipelines want; other than Options only during an override
	Override   *Override      // nil if the limits are not overridden
	Limiter    any            // such as a *limiter.TokenBucket or a *store.Limiter
	Pipelines  []string       // the pipelines that use it, each as name or name/instance, sorted
}

// Limiters yields the limiters that versions in force use, sorted by name.
func (r *Registry) Limiters() iter.Seq2[string, LimiterInfo] {
	return func(yield func(string, LimiterInfo) bool) {
		infos := r.limiterInfos()
		for _, name := range slices.Sorted(maps.Keys(infos)) {
			if !yield(name, *infos[name]) {
				return
			}
		}
	}
}

func (r *Registry) limiterInfos() map[string]*LimiterInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := make(map[string]*LimiterInfo)
	for _, i := range r.instancesInForce() {
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
	return infos
}

// info describes the limiter, without its pipelines. The caller holds r.mu.
func (res *resource) info() *LimiterInfo {
	o := res.options.(LimiterOptions)
	i := &LimiterInfo{Name: res.id.name, Kind: res.id.kind, Options: o, Configured: o, Limiter: res.value}
	if i.Override = res.overridden(); i.Override != nil {
		i.Options.Limits = rate.Of(i.Override.Options)
	}
	return i
}

// A resourceKey is the name of a resource. The names of limiters, and those of each Kind of [Kept], are separate.
type resourceKey struct {
	space string // "" for limiters, or a Kept's Kind
	name  string
}

// String returns the name as errors have it.
func (k resourceKey) String() string { return fmt.Sprintf("%s %q", cmp.Or(k.space, "limiter"), k.name) }

// A resourceID identifies a resource. Two of the same name and different kinds are different resources.
type resourceID struct {
	resourceKey

	kind     string
	identity any // the types of a partitioned limiter; a sharedIdentity; a keptIdentity; otherwise nil
}

// isKept reports whether the resource is a value of [Keep].
func (i resourceID) isKept() bool { return i.space != "" }

// A resource is a limiter that the registry has made, or a value of [Keep]. It is closed when no version uses it any
// more, whether staged, in force or draining.
type resource struct {
	id          resourceID
	value       any
	reconfigure func(options any) error
	partitioned any          // an adjustablePartitioned; otherwise nil
	inStore     storeLimiter // not nil: a limiter in a store, see [Shared]
	unobserve   func()       // what ObserveLimiter has returned; can be nil

	// The registry's mu guards the following. Only who has reconfiguring changes options and override.
	options  any       // the options that the versions in force want; of a comparable type
	override *override // nil: none
	observed bool      // ObserveLimiter was called
	users    int       // how many versions use it
	inForce  int       // how many of them are in force
}

// A resourceUse is a resource and the options that one version wants it to have.
type resourceUse struct {
	*resource

	options any
	onSwap  func() // called when the version comes into force; can be nil
}

// use returns the resource with that id and records that this version uses it. If there is none, it adds the one that fresh
// returns. If fresh is nil, it returns nil. invalid is what is wrong with the options: when an existing resource gets them, the
// build can no longer fail.
func (b *Builder) use(want resourceID, options any, invalid error, fresh func() (*resource, error)) (*resource, error) {
	switch u := b.version.uses[want.resourceKey]; {
	case invalid != nil:
		return nil, fmt.Errorf("%v: %w", want.resourceKey, invalid)
	case want.name == "":
		return nil, fmt.Errorf("a %s of the registry needs a name", want.kind)
	case u != nil && (u.id != want || u.options != options):
		return nil, conflict(b.version.instance.id, u, b.version.instance.id, &resourceUse{resource: &resource{id: want}, options: options})
	case u != nil:
		return u.resource, nil
	}
	r := b.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.resources[want]
	if used == nil && fresh == nil {
		return nil, nil
	}
	if used == nil {
		var err error
		if used, err = fresh(); err != nil {
			return nil, fmt.Errorf("%v: %w", want.resourceKey, err)
		}
		used.id, used.options = want, options
		r.resources[want] = used
	}
	used.users++
	b.version.uses[want.resourceKey] = &resourceUse{resource: used, options: options}
	return used, nil
}

// reconfigureFrom gives the resource the options to in place of from. An override stays in force.
func (res *resource) reconfigureFrom(from, to any) error {
	if from, to = res.override.effective(from), res.override.effective(to); from == to {
		return nil
	}
	return res.reconfigure(to)
}

// releaseAll is called when a version does not use its resources any more.
func (r *Registry) releaseAll(v *version) error {
	var errs []error
	for _, u := range v.uses {
		errs = append(errs, r.release(u.resource))
	}
	return errors.Join(errs...)
}

// release is called when one user less has the resource. It closes the resource if that was the last.
func (r *Registry) release(res *resource) error {
	r.mu.Lock()
	res.users--
	last := res.users == 0
	if last {
		delete(r.resources, res.id)
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	r.leaveOverride(res)
	var errs []error
	if res.unobserve != nil {
		errs = append(errs, recovered.Error(func() error { res.unobserve(); return nil }))
	}
	if c, ok := res.value.(io.Closer); ok {
		errs = append(errs, recovered.Error(c.Close))
	}
	return errors.Join(errs...)
}
