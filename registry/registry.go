package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// DefaultDrainTimeout and DefaultMaxInstances are the values of options that are 0.
const (
	DefaultDrainTimeout = 30 * time.Second
	DefaultMaxInstances = 1000
)

// Options are the options of a [Registry]. The zero value has the defaults.
type Options struct {
	// Listener is told of the events of every pipeline of the registry, and of [EventReload] and the other events of the
	// registry. If it has a method Forget(pipeline.Source), that is called when a pipeline or instance was removed or
	// closed and its last execution on any version has ended. If the Listener panics at an event of the registry, the
	// panic is logged with [slog.Default] and the change goes on. If nil, events are not reported.
	Listener pipeline.Listener
	// Instance returns the instance name that [Registry.Get] uses for a pipeline, such as the region that the program
	// runs in. It is called once for each definition. If nil, the instance name is empty.
	Instance func(name string) string
	// DrainTimeout bounds the wait for the executions on a replaced version. After it, the version is disposed of
	// even if executions still run on it, which is reported as [ErrDrainTimeout]. 0 means 30 s. If negative, there is
	// no limit.
	DrainTimeout time.Duration
	// MaxInstances is how many instances a definition can have beside the one of [Registry.Get]. 0 means 1000. If
	// negative, there is no limit.
	MaxInstances int
	// ObserveLimiter is called for each limiter of the registry when it comes into force, for example to register
	// gauges. The function that it returns is called when the limiter is closed; it can be nil. ObserveLimiter is not
	// called for partitioned limiters, which have no statistics as a whole. It must not call the registry. If it
	// panics, the panic is logged with [slog.Default].
	ObserveLimiter func(name string, l limiter.StatisticsProvider) (stop func())
}

// A Registry has named pipelines. Make one with [New]. It is safe for concurrent use.
type Registry struct {
	options Options
	hooks   pipeline.Hooks // of the Listener
	slot    slot
	// ready has the instances that have been built, so that Get and GetInstance take no lock. Every instance is in it by
	// its id. The instance that Get returns is also in it by the name of the pipeline, a string.
	ready sync.Map

	mu          sync.Mutex // guards what follows; never held while functions of the program run
	definitions map[string]*definition
	removed     map[string]*removedHandle // by names without a definition, while the program has the handle
	resources   map[resourceID]*resource
	firstBuilds map[uint64]*firstBuild // by the number of the goroutine
	disposing   map[uint64]bool        // the numbers of the goroutines that run disposals
	sameName    map[resourceKey]int    // how many resources have that name
	draining    map[id]int             // by instance: the number of replaced versions that executions can still reach
	undrained   map[*disposal]bool     // the disposals of replaced versions that are not drained
	overridden  map[*resource]bool     // the limiters that have an override
	closed      bool
	failed      []error // what has gone wrong in disposals since Close was called

	closing closing
}

// New returns a registry without pipelines. If o is nil, the options have their defaults.
func New(o *Options) *Registry {
	r := &Registry{
		slot:        slot{taken: make(chan struct{}, 1)},
		definitions: make(map[string]*definition),
		removed:     make(map[string]*removedHandle),
		resources:   make(map[resourceID]*resource),
		firstBuilds: make(map[uint64]*firstBuild),
		disposing:   make(map[uint64]bool),
		sameName:    make(map[resourceKey]int),
		draining:    make(map[id]int),
		undrained:   make(map[*disposal]bool),
		overridden:  make(map[*resource]bool),
		closing:     closing{called: make(chan struct{}), done: make(chan struct{})},
	}
	r.closing.drainContext, r.closing.drainNow = context.WithCancel(context.Background())
	if o != nil {
		r.options = *o
		r.hooks = pipeline.HooksOf(o.Listener)
	}
	r.options.DrainTimeout = cmp.Or(r.options.DrainTimeout, DefaultDrainTimeout)
	r.options.MaxInstances = cmp.Or(r.options.MaxInstances, DefaultMaxInstances)
	return r
}

// Define defines the pipeline of that name: build builds it when it is first asked for. The error is [ErrDefined] if
// the name is taken. Names of pipelines and instances have at most 256 bytes.
func (r *Registry) Define(name string, build BuildFunc) error {
	if err := checkDefinition(name, build); err != nil {
		return err
	}
	defaultName, err := r.defaultInstanceName(name)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	d := r.findOrAddDefinition(name, defaultName)
	if d.build != nil {
		return fmt.Errorf("%w: %q", ErrDefined, name)
	}
	d.build = build
	return nil
}

// Defined reports whether there is a definition of that name.
func (r *Registry) Defined(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.findDefinition(name)
	return err == nil
}

// Get returns the pipeline of that name. If it has not been built, Get builds it. The handle stays the same across
// reloads, and when the name is removed and defined again: keep it, and execute everything through it.
//
// If several callers ask for a pipeline at the same time, it is built once; the others wait until the build ends or
// the registry is closed. If the build fails, all of them get the error, and the next call builds again. The error is
// [ErrNotDefined] if there is no definition, and [ErrClosed] after Close.
//
// A [BuildFunc] should call [Builder.Pipeline] instead, which also finds pipelines that the same change builds. If the
// BuildFunc of a first build calls Get on its own goroutine for its own pipeline, or for one whose first build waits
// for it, Get returns [ErrCycle]. On another goroutine, Get waits until the registry is closed.
func (r *Registry) Get(name string) (*pipeline.Pipeline, error) {
	i, err := r.find(name, nil)
	if err != nil {
		return nil, err
	}
	return i.handOut(), nil
}

// InUse reports whether Get or GetInstance has returned a handle of the pipeline. If the name was removed and defined
// again, a handle that Get returned before counts if the program still had it.
func (r *Registry) InUse(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.definitions[name]
	return d != nil && len(d.instancesHandedOut()) > 0
}

// find returns the instance whose handle Get returns. If it has not been built, find builds it. requester is
// as in getOrBuild.
func (r *Registry) find(name string, requester *firstBuild) (*instance, error) {
	if i, ok := r.ready.Load(name); ok {
		return i.(*instance), nil
	}
	r.mu.Lock()
	d, err := r.findDefinition(name)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return r.getOrBuild(id{name, d.defaultInstance}, requester)
}

// GetInstance is [Registry.Get] for one of several instances of a pipeline, which the same function builds: one for
// each region or tenant, for example. The error is [ErrTooManyInstances] if there would be more than
// [Options.MaxInstances]. See [Registry.RemoveInstance].
func (r *Registry) GetInstance(name, instance string) (*pipeline.Pipeline, error) {
	i, err := r.findInstance(id{name, instance})
	if err != nil {
		return nil, err
	}
	return i.handOut(), nil
}

func (r *Registry) findInstance(want id) (*instance, error) {
	if i, ok := r.ready.Load(want); ok {
		return i.(*instance), nil
	}
	return r.getOrBuild(want, nil)
}

// GetOrDefine is [Registry.Get], after [Registry.Define] if the pipeline is not defined. If it is defined, it keeps
// its definition, and build is ignored.
func (r *Registry) GetOrDefine(name string, build BuildFunc) (*pipeline.Pipeline, error) {
	if err := r.Define(name, build); err != nil && !errors.Is(err, ErrDefined) {
		return nil, err
	}
	return r.Get(name)
}

// All yields the pipelines that have been built, sorted by name and instance. A name comes once for each instance.
func (r *Registry) All() iter.Seq2[string, *pipeline.Pipeline] {
	return func(yield func(string, *pipeline.Pipeline) bool) {
		r.mu.Lock()
		all := r.built()
		r.mu.Unlock()
		for _, i := range all {
			if !yield(i.name, i.handle.Pipeline()) {
				return
			}
		}
	}
}

// built returns the instances that have a version in force, sorted. The caller holds r.mu.
func (r *Registry) built() []*instance {
	var all []*instance
	for _, d := range r.definitions {
		for _, i := range d.instances {
			if i.current != nil {
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, byID)
	return all
}
