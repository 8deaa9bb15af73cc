package registry

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir"
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
// [limiter.TokenBucketOptions], and so on. If there is none, it is made. If there is one, it stays, with what it has counted, and gets the options o when the version that is being built comes into force.
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
	fresh, err := limiter.New(o)
	if err != nil {
		b.problem(fmt.Errorf("limiter %q: %w", name, err))
		return weir.Must(limiter.New(rate.Example(l.Kind)))
	}
	used, err := b.useResource(newResourceID(name, kindName(l), nil), LimiterOptions{Limits: l}, func() (*resource, error) {
		return &resource{value: fresh, reconfigure: func(o any) error { return fresh.Reconfigure(o.(LimiterOptions).Limits) }}, nil
	})
	if err != nil {
		b.problem(err)
		return fresh
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
	o := res.options.(LimiterOptions)
	i := &LimiterInfo{Name: res.id.name, Kind: res.id.kind, Options: o, Configured: o, Limiter: res.value}
	if i.Override = res.overridden(); i.Override != nil {
		i.Options.Limits = rate.Of(i.Override.Options)
	}
	return i
}
