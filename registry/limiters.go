package registry

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// LimiterOptions are the options of one of the kinds of limiters.
type LimiterOptions interface {
	comparable
	limiter.TokenBucketOptions | limiter.FixedWindowOptions | limiter.SlidingWindowOptions | limiter.ConcurrencyOptions
	Validate() error
}

// A limiterKind has what the registry knows about the limiters with the options O.
type limiterKind[O LimiterOptions] struct {
	name            string
	manual          func(O) bool // reports whether the options have ManualReplenishment
	valid           O            // for a placeholder of a limiter that could not be made
	makeShared      sharedMaker[*store.Limiter[O], O]
	makePartitioned sharedMaker[*store.Partitioned[O], O]
}

// limiterKinds has one limiterKind for each type of options.
var limiterKinds = []any{
	limiterKind[limiter.TokenBucketOptions]{
		name: "token bucket", manual: func(o limiter.TokenBucketOptions) bool { return o.ManualReplenishment },
		valid:      limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second},
		makeShared: (*store.Store).TokenBucket, makePartitioned: (*store.Store).PartitionedTokenBucket,
	},
	limiterKind[limiter.FixedWindowOptions]{
		name: "fixed window", manual: func(o limiter.FixedWindowOptions) bool { return o.ManualReplenishment },
		valid:      limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second},
		makeShared: (*store.Store).FixedWindow, makePartitioned: (*store.Store).PartitionedFixedWindow,
	},
	limiterKind[limiter.SlidingWindowOptions]{
		name: "sliding window", manual: func(o limiter.SlidingWindowOptions) bool { return o.ManualReplenishment },
		valid:      limiter.SlidingWindowOptions{PermitLimit: 1, Window: time.Second, SegmentsPerWindow: 1},
		makeShared: (*store.Store).SlidingWindow, makePartitioned: (*store.Store).PartitionedSlidingWindow,
	},
	limiterKind[limiter.ConcurrencyOptions]{
		name: "concurrency", manual: func(limiter.ConcurrencyOptions) bool { return false },
		valid:      limiter.ConcurrencyOptions{PermitLimit: 1},
		makeShared: (*store.Store).Concurrency, makePartitioned: (*store.Store).PartitionedConcurrency,
	},
}

func kindOf[O LimiterOptions]() limiterKind[O] {
	i := slices.IndexFunc(limiterKinds, func(k any) bool { _, ok := k.(limiterKind[O]); return ok })
	return limiterKinds[i].(limiterKind[O])
}

// kindName returns the name of the kind of a limiter. ManualReplenishment cannot change on an existing limiter, so
// limiters with and without it are of different kinds.
func kindName[O LimiterOptions](o O) string {
	k := kindOf[O]()
	if k.manual(o) {
		return k.name + ", replenished by hand"
	}
	return k.name
}

// TokenBucket returns the registry's token bucket of that name. If there is none, it is made. If there is one, it
// stays, with what it has counted, and gets the options o when the version that is being built comes into force.
//
// Pipelines that use the same name share it, and so do the instances of a pipeline unless [Builder.Instance] is part
// of the name. If two pipelines give it different options, the build fails with [ErrLimiterConflict]. It is closed
// when no version uses it any more. If a reload asks for another kind of limiter under the same name, a new limiter
// is made, and the old one is closed when no version uses it; the same holds for another ManualReplenishment, which
// cannot change on an existing limiter.
//
// If the options are invalid, the build fails, and the limiter that is returned must not be used after the build.
func (b *Builder) TokenBucket(name string, o limiter.TokenBucketOptions) *limiter.TokenBucket {
	return useOwn(b, name, o, limiter.NewTokenBucket)
}

// FixedWindow returns the registry's fixed window of that name. See [Builder.TokenBucket].
func (b *Builder) FixedWindow(name string, o limiter.FixedWindowOptions) *limiter.FixedWindow {
	return useOwn(b, name, o, limiter.NewFixedWindow)
}

// SlidingWindow returns the registry's sliding window of that name. See [Builder.TokenBucket].
func (b *Builder) SlidingWindow(name string, o limiter.SlidingWindowOptions) *limiter.SlidingWindow {
	return useOwn(b, name, o, limiter.NewSlidingWindow)
}

// Concurrency returns the registry's concurrency limiter of that name. See [Builder.TokenBucket].
func (b *Builder) Concurrency(name string, o limiter.ConcurrencyOptions) *limiter.Concurrency {
	return useOwn(b, name, o, limiter.NewConcurrency)
}

// ownLimiter is what the registry needs of a limiter in this process.
type ownLimiter[O any] interface {
	limiter.Limiter
	Reconfigure(o O) error
}

// useOwn returns the limiter of that name and kind and records that this build uses it.
func useOwn[L ownLimiter[O], O LimiterOptions](b *Builder, name string, o O, newLimiter func(O) (L, error)) L {
	fresh, err := newLimiter(o)
	if err != nil {
		b.problem(fmt.Errorf("limiter %q: %w", name, err))
		return weir.Must(newLimiter(kindOf[O]().valid))
	}
	used, err := b.useResource(newResourceID(name, kindName(o), nil), o, func() (*resource, error) {
		return &resource{value: fresh, limits: ownLimits[O](), reconfigure: func(o any) error { return fresh.Reconfigure(o.(O)) }}, nil
	})
	if err != nil {
		b.problem(err)
		return fresh
	}
	return used.value.(L)
}

// A LimiterInfo describes a limiter of the registry.
type LimiterInfo struct {
	Name       string    // as given to the Builder
	Kind       string    // such as "token bucket"
	Options    any       // the options in force, such as a limiter.TokenBucketOptions, a PartitionedOptions or SharedOptions
	Configured any       // the options that the pipelines want; other than Options only during an override
	Override   *Override // nil if the limits are not overridden
	Limiter    any       // such as a *limiter.TokenBucket or a *store.TokenBucket
	Pipelines  []string  // the pipelines that use it, each as name or name/instance, sorted
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
	for _, i := range r.built() {
		for key, u := range i.current.uses {
			if u.id.isKept() {
				continue
			}
			name := key.name
			if infos[name] == nil {
				infos[name] = u.info()
			}
			infos[name].Pipelines = append(infos[name].Pipelines, i.String())
		}
	}
	return infos
}

// info describes the limiter, without its pipelines. The caller holds r.mu.
func (res *resource) info() *LimiterInfo {
	i := &LimiterInfo{Name: res.id.name, Kind: res.id.kind, Options: res.options, Configured: res.options, Limiter: res.value}
	if i.Override = res.overridden(); i.Override != nil {
		i.Options = res.limits.with(res.options, i.Override.Options)
	}
	return i
}
