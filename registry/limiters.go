package registry

import (
	"fmt"
	"iter"
	"slices"

	"github.com/weir-go/weir/limiter"
)

// A limiterKind makes and reconfigures the limiters of one kind.
type limiterKind[L limiter.Limiter, O comparable] struct {
	name        string
	make        func(O) (L, error)
	reconfigure func(L, O) error
	valid       O // valid options for a placeholder of a limiter that could not be made
}

var (
	tokenBuckets = limiterKind[*limiter.TokenBucket, limiter.TokenBucketOptions]{
		"token bucket", limiter.NewTokenBucket, (*limiter.TokenBucket).Reconfigure,
		limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 1},
	}
	fixedWindows = limiterKind[*limiter.FixedWindow, limiter.FixedWindowOptions]{
		"fixed window", limiter.NewFixedWindow, (*limiter.FixedWindow).Reconfigure,
		limiter.FixedWindowOptions{PermitLimit: 1, Window: 1},
	}
	slidingWindows = limiterKind[*limiter.SlidingWindow, limiter.SlidingWindowOptions]{
		"sliding window", limiter.NewSlidingWindow, (*limiter.SlidingWindow).Reconfigure,
		limiter.SlidingWindowOptions{PermitLimit: 1, Window: 1, SegmentsPerWindow: 1},
	}
	concurrencies = limiterKind[*limiter.Concurrency, limiter.ConcurrencyOptions]{
		"concurrency", limiter.NewConcurrency, (*limiter.Concurrency).Reconfigure,
		limiter.ConcurrencyOptions{PermitLimit: 1},
	}
)

// TokenBucket returns the registry's token bucket of that name. If there is none, it is made. If there is one, it
// stays, with what it has counted, and gets the options o when the version that is being built comes into force.
//
// Pipelines that use the same name share it, and so do the instances of a pipeline unless [Builder.Instance] is part
// of the name. If two pipelines give it different options, the build fails with [ErrLimiterConflict]. It is closed
// when no version uses it any more. If a reload asks for another kind of limiter under the same name, it gets a new
// limiter, and the old one is closed when no version uses it; the same holds for another ManualReplenishment, which
// cannot change on an existing limiter.
//
// If the options are invalid, the build fails, and the limiter that is returned must not be used after it.
func (b *Builder) TokenBucket(name string, o limiter.TokenBucketOptions) *limiter.TokenBucket {
	return useOwn(b, tokenBuckets, name, withReplenishment("token bucket", o.ManualReplenishment), o)
}

// FixedWindow returns the registry's fixed window of that name. See [Builder.TokenBucket].
func (b *Builder) FixedWindow(name string, o limiter.FixedWindowOptions) *limiter.FixedWindow {
	return useOwn(b, fixedWindows, name, withReplenishment("fixed window", o.ManualReplenishment), o)
}

// SlidingWindow returns the registry's sliding window of that name. See [Builder.TokenBucket].
func (b *Builder) SlidingWindow(name string, o limiter.SlidingWindowOptions) *limiter.SlidingWindow {
	return useOwn(b, slidingWindows, name, withReplenishment("sliding window", o.ManualReplenishment), o)
}

// Concurrency returns the registry's concurrency limiter of that name. See [Builder.TokenBucket].
func (b *Builder) Concurrency(name string, o limiter.ConcurrencyOptions) *limiter.Concurrency {
	return useOwn(b, concurrencies, name, "concurrency", o)
}

// withReplenishment returns the kind of a limiter: limiters with and without ManualReplenishment are of different
// kinds.
func withReplenishment(kind string, manual bool) string {
	if manual {
		return kind + ", replenished by hand"
	}
	return kind
}

// useOwn returns the limiter of that name and kind and records that this build uses it.
func useOwn[L limiter.Limiter, O comparable](b *Builder, k limiterKind[L, O], name, kindName string, o O) L {
	fresh, err := k.make(o)
	if err != nil {
		b.problem(fmt.Errorf("limiter %q: %w", name, err))
		fresh, _ = k.make(k.valid)
		return fresh
	}
	used, err := b.useResource(newResourceID(name, kindName, nil), o, func() (*resource, error) {
		return &resource{
			value:       fresh,
			reconfigure: func(o any) error { return k.reconfigure(fresh, o.(O)) },
		}, nil
	})
	if err != nil {
		b.problem(err)
		return fresh
	}
	return used.value.(L)
}

// A LimiterInfo describes a limiter of the registry.
type LimiterInfo struct {
	Name      string   // as given to the Builder
	Kind      string   // such as "token bucket"
	Options   any      // the options in force, such as a limiter.TokenBucketOptions, a PartitionedOptions or SharedOptions
	Limiter   any      // such as a *limiter.TokenBucket or a *store.TokenBucket
	Pipelines []string // the pipelines that use it, each as name or name/instance, sorted
}

// Limiters yields the limiters that versions in force use, sorted by name.
func (r *Registry) Limiters() iter.Seq2[string, LimiterInfo] {
	return func(yield func(string, LimiterInfo) bool) {
		infos := r.limiterInfos()
		names := make([]string, 0, len(infos))
		for name := range infos {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(name, *infos[name]) {
				return
			}
		}
	}
}

func (r *Registry) limiterInfos() map[string]*LimiterInfo {
	all := r.built()
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := make(map[string]*LimiterInfo)
	for _, i := range all {
		if i.current == nil {
			continue
		}
		for key, u := range i.current.uses {
			if u.kept {
				continue
			}
			name := key.name
			if infos[name] == nil {
				infos[name] = &LimiterInfo{Name: name, Kind: u.id.kind, Options: u.resource.options, Limiter: u.value}
			}
			infos[name].Pipelines = append(infos[name].Pipelines, i.String())
		}
	}
	return infos
}
