package registry

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/limiter"
)

// A useKey is what something of the registry is called. Limiters and each kind of what
// [Keep] keeps have names of their own.
type resourceKey struct {
	space string // "" for limiters, or a Kept's Kind
	name  string
}

// String is what errors call it.
func (k resourceKey) String() string { return fmt.Sprintf("%s %q", cmp.Or(k.space, "limiter"), k.name) }

// A limiterID names a limiter of the registry: limiters of different kinds are
// different ones, whatever their name.
type resourceID struct {
	resourceKey
	kind     string
	identity any // the types of a partitioned limiter, as two of them may be called the same; a sharing; a keeping
}

// kept reports whether it is of [Keep].
func (i resourceID) isKept() bool { return i.space != "" }

func newResourceID(name, kind string, of any) resourceID {
	return resourceID{resourceKey{name: name}, kind, of}
}

// An ownedLimiter is a limiter that the registry made. It is closed when no
// version, staged, in force or draining, uses it any more.
type resource struct {
	id          resourceID
	value       any
	reconfigure func(options any) error
	options     any              // those in force; of a comparable type
	partitioned any              // what stands behind a partitioned limiter
	kept        bool             // it is no limiter, see [Keep]
	shared      bool             // its state is in a store, see [Shared]
	users       int              // guarded by the registry's mu, as busy
	busy        *reconfiguration // what gives it other options just now
	observation observation
}

// A use is one version's wish for a limiter with those options.
type resourceUse struct {
	*resource
	options  any
	onCommit func() // what else is to be done when the version comes into force; may be nil
}

// A kind is how the limiters of one kind are made.
type limiterKind[L limiter.Limiter, O comparable] struct {
	name        string
	make        func(O) (L, error)
	reconfigure func(L, O) error
	valid       O // options that are valid, for the place of a limiter that could not be made
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

func withReplenishment(kind string, manual bool) string {
	if manual {
		return kind + ", replenished by hand"
	}
	return kind
}

// own returns the limiter of that name and kind, and notes that this build uses it.
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

// use returns the registry's limiter of that id, the one that fresh returns if
// there is none, and counts this build among its users. With a nil fresh it returns
// nil if there is none.
func (b *Builder) useResource(want resourceID, options any, fresh func() (*resource, error)) (*resource, error) {
	if want.name == "" {
		return nil, fmt.Errorf("a %s of the registry needs a name", want.kind)
	}
	if u := b.uses[want.resourceKey]; u != nil {
		if u.id != want || u.options != options {
			return nil, conflict(b.id(), u, b.id(), &resourceUse{resource: &resource{id: want}, options: options})
		}
		return u.resource, nil
	}
	r := b.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.limiters[want]
	if l == nil && fresh == nil {
		return nil, nil
	}
	if l == nil {
		var err error
		if l, err = fresh(); err != nil {
			return nil, err
		}
		l.id, l.options = want, options
		r.limiters[want] = l
		r.sameName[want.resourceKey]++
	}
	l.users++
	b.uses[want.resourceKey] = &resourceUse{resource: l, options: options}
	return l, nil
}

func (b *Builder) id() id { return id{b.Name, b.Instance} }

// conflict says what the pipelines a and b disagree about. It names the fields that
// differ, and values only of weir's own options: the program's may be secret.
func conflict(a id, ua *resourceUse, b id, ub *resourceUse) error {
	if ua.id.isKept() {
		err := fmt.Errorf("%w: %v: pipeline %s and pipeline %s do not want the same: %s",
			ErrLimiterConflict, ua.id.resourceKey, a, b, difference(ua.options, ub.options))
		return &faultError{err, []id{a, b}}
	}
	err := fmt.Errorf("%w: %v: pipeline %s wants a %s with %+v, pipeline %s a %s with %+v",
		ErrLimiterConflict, ua.id.resourceKey, a, ua.id.kind, ua.options, b, ub.id.kind, ub.options)
	if ua.id.kind == ub.id.kind && ua.options == ub.options {
		err = fmt.Errorf("%w, in another store or of other types", err)
	}
	return &faultError{err, []id{a, b}}
}

// difference names the fields in which two options differ.
func difference(a, b any) string {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.Type() != vb.Type() {
		return "the options are of other types"
	}
	var names []string
	if va.Kind() == reflect.Struct {
		for i := range va.NumField() {
			if f := va.Type().Field(i); f.IsExported() && !va.Field(i).Equal(vb.Field(i)) {
				names = append(names, f.Name)
			}
		}
	}
	if len(names) == 0 {
		return "the options differ"
	}
	return "the options differ in " + strings.Join(names, ", ")
}

// agree returns an error if the versions that would be in force do not want the same of a
// limiter that more than one of them names. All but the first few, which are new,
// are known to agree with each other.
func checkConflicts(inForce []*build, fresh int) error {
	type wish struct {
		by  id
		use *resourceUse
	}
	wishes := make(map[resourceKey]wish)
	for i, b := range inForce {
		for key, u := range b.uses {
			w, ok := wishes[key]
			if !ok {
				if i < fresh {
					wishes[key] = wish{b.instance.id, u}
				}
			} else if w.use.id != u.id || w.use.options != u.options {
				return conflict(w.by, w.use, b.instance.id, u)
			}
		}
	}
	return nil
}

// release is called when a build does not use its limiters any more. It closes
// those that no build uses; failed is called with what goes wrong.
func (r *Registry) release(uses map[resourceKey]*resourceUse, failed func(error)) {
	var unused []*resource
	r.mu.Lock()
	for _, u := range uses {
		u.users--
		if u.users == 0 {
			delete(r.limiters, u.id)
			if r.sameName[u.id.resourceKey]--; r.sameName[u.id.resourceKey] == 0 {
				delete(r.sameName, u.id.resourceKey)
			}
			unused = append(unused, u.resource)
		}
	}
	r.mu.Unlock()
	for _, l := range unused {
		// Each is closed, also if the one before leaves the goroutine.
		defer func() {
			if err := l.close(); err != nil {
				failed(err)
			}
		}()
	}
}

// close closes the limiter, and ends that it is observed.
func (l *resource) close() (err error) {
	defer func() {
		if c, ok := l.value.(io.Closer); ok {
			err = errors.Join(err, guarded(c.Close))
		}
	}()
	return guarded(l.observation.end)
}

// observed is what [Options.ObserveLimiter] said of a limiter.
type observation struct {
	mu    sync.Mutex
	begun bool
	ended bool
	stop  func()
}

// begin calls observe, once and unless the limiter is closed by now. If it is closed
// meanwhile, begin calls stop itself.
func (o *observation) begin(observe func() (stop func())) {
	o.mu.Lock()
	if o.begun || o.ended {
		o.mu.Unlock()
		return
	}
	o.begun = true
	o.mu.Unlock()
	stop := observe()
	o.mu.Lock()
	if !o.ended {
		o.stop, stop = stop, nil
	}
	o.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (o *observation) end() error {
	o.mu.Lock()
	o.ended = true
	stop := o.stop
	o.stop = nil
	o.mu.Unlock()
	if stop != nil {
		stop()
	}
	return nil
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
