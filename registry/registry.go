package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

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
	// registry. Its Forget is called when a pipeline or instance was removed or
	// closed and its last execution on any version has ended. If the Listener panics at an event of the registry, the
	// panic is logged with [slog.Default] and the change goes on. If nil, events are not reported.
	Listener pipeline.Listener
	// Instance returns the instance name that [Registry.Get] uses for a pipeline, such as the region that the program
	// runs in. It must return the same for the same name. If nil, the instance name is empty.
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
	// called for partitioned limiters, which have no statistics as a whole. If it panics, the panic is logged with
	// [slog.Default].
	ObserveLimiter func(name string, l limiter.StatisticsProvider) (stop func())
}

// A Registry has named pipelines. Make one with [New]. It is safe for concurrent use.
type Registry struct {
	options Options
	hooks   pipeline.Hooks // of the Listener
	// ready has the instances in force, so that Get and GetInstance take no lock. Every instance is in it by its id. The
	// instance that Get returns is also in it by the name of the pipeline, a string.
	ready sync.Map
	// Who puts an element into one of these has it until it is taken out.
	changing      chan struct{} // by a change, so that each sees the result of the one before
	reconfiguring chan struct{} // by who gives limiters other options

	mu          sync.Mutex // guards what follows; never held while functions of the program run
	definitions map[string]*definition
	// removed has the handles that Get has returned for names without a definition. If the name is defined again, the handle
	// works again. One that the program has dropped takes no memory after the next removal.
	removed   map[string]weak.Pointer[pipeline.Reloadable]
	resources map[resourceID]*resource
	inForce   map[resourceKey]*resource // the resources that versions in force use
	draining  map[id][]*disposal        // the replaced versions that executions can still reach
	closed    bool
	failed    []error // what has gone wrong in disposals since Close was called

	closing closing
}

// New returns a registry without pipelines. If o is nil, the options have their defaults.
func New(o *Options) *Registry {
	r := &Registry{
		changing:      make(chan struct{}, 1),
		reconfiguring: make(chan struct{}, 1),
		definitions:   make(map[string]*definition),
		removed:       make(map[string]weak.Pointer[pipeline.Reloadable]),
		resources:     make(map[resourceID]*resource),
		inForce:       make(map[resourceKey]*resource),
		draining:      make(map[id][]*disposal),
		closing:       closing{called: make(chan struct{}), done: make(chan struct{})},
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

// Define builds a pipeline and puts it in force under that name. If build fails, nothing is defined. The error is
// [ErrDefined] if the name is taken. A pipeline that build asks for by [Builder.Pipeline] must be in force; [Registry.Apply]
// defines several that contain each other. Names of pipelines and instances have at most 256 bytes.
func (r *Registry) Define(name string, build BuildFunc) error {
	if err := checkDefinition(name, build); err != nil {
		return err
	}
	defaultName, err := r.defaultInstanceName(name)
	if err != nil {
		return err
	}
	i, err := r.beginDefinition(name, defaultName, build)
	if err != nil {
		return err
	}
	return r.firstBuild(i, build)
}

// beginDefinition adds a definition and returns its instance, of which the caller makes the first build.
func (r *Registry) beginDefinition(name, defaultName string, build BuildFunc) (*instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	d := r.findOrAddDefinition(name, defaultName)
	if d.build != nil {
		return nil, fmt.Errorf("%w: %q", ErrDefined, name)
	}
	d.build = build
	i := d.findOrAdd(d.defaultInstance)
	r.beginFirstBuild(i)
	return i, nil
}

// Defined reports whether there is a definition of that name.
func (r *Registry) Defined(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.findDefinition(name)
	return err == nil
}

// Get returns the pipeline of that name. The handle stays the same across reloads, and when the name is removed and
// defined again: keep it, and execute everything through it. If the pipeline is being defined, Get waits for its build.
// The error is [ErrNotDefined] if there is no definition, and [ErrClosed] after Close.
//
// A [BuildFunc] must call [Builder.Pipeline] instead, which also finds pipelines that the same change builds. If it calls
// Get for the pipeline that it defines, Get waits until the registry is closed.
func (r *Registry) Get(name string) (*pipeline.Pipeline, error) {
	i, err := r.find(name)
	if err != nil {
		return nil, err
	}
	return i.handOut(), nil
}

// find returns the instance whose handle Get returns.
func (r *Registry) find(name string) (*instance, error) {
	if i, ok := r.ready.Load(name); ok {
		return i.(*instance), nil
	}
	r.mu.Lock()
	d, err := r.findDefinition(name)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	i := d.instances[d.defaultInstance]
	first := i.firstBuild
	r.mu.Unlock()
	return i, r.await(first)
}

// GetInstance is [Registry.Get] for one of several instances of a pipeline, which the same function builds: one for
// each region or tenant, for example. If the instance has not been built, GetInstance builds it. If several callers ask
// for it at the same time, it is built once; the others wait. If the build fails, all of them get the error, and the next
// call builds again. The error is [ErrTooManyInstances] if there would be more than [Options.MaxInstances]. See
// [Registry.RemoveInstance].
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
	if _, err := r.find(want.name); err != nil {
		return nil, err
	}
	r.mu.Lock()
	i, err := r.findOrAddInstance(want)
	if err != nil || i.current != nil {
		r.mu.Unlock()
		return i, err
	}
	first, build := i.firstBuild, i.definition.build
	if first == nil {
		r.beginFirstBuild(i)
	}
	r.mu.Unlock()
	if first == nil {
		return i, r.firstBuild(i, build)
	}
	return i, r.await(first)
}

// GetOrDefine is [Registry.Get], after [Registry.Define] if the pipeline is not defined. If it is defined, it keeps
// its definition, and build is ignored.
func (r *Registry) GetOrDefine(name string, build BuildFunc) (*pipeline.Pipeline, error) {
	if err := r.Define(name, build); err != nil && !errors.Is(err, ErrDefined) {
		return nil, err
	}
	return r.Get(name)
}

// InUse reports whether Get or GetInstance has returned a handle of the pipeline. If the name was removed and defined
// again, a handle that Get returned before counts if the program still had it.
func (r *Registry) InUse(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.definitions[name]
	return d != nil && len(d.instancesHandedOut()) > 0
}

// All yields the pipelines, sorted by name and instance. A name comes once for each instance.
func (r *Registry) All() iter.Seq2[string, *pipeline.Pipeline] {
	return func(yield func(string, *pipeline.Pipeline) bool) {
		for _, info := range r.pipelineInfos() {
			if !yield(info.Name, info.Pipeline) {
				return
			}
		}
	}
}

// A PipelineInfo describes an instance of a pipeline.
type PipelineInfo struct {
	// Name and Instance are the names of the pipeline and of its instance.
	Name, Instance string
	// Pipeline is the handle, as [Registry.Get] or [Registry.GetInstance] returns it.
	Pipeline *pipeline.Pipeline
	// Version is the number of the version in force: 1 for the first, and one more for each version that has replaced
	// another. A pipeline that is removed and defined again begins at 1.
	Version int
	// Built is when the version came into force.
	Built time.Time
	// LastReload is when the last [Registry.Reload] or [Registry.Apply] that was to replace a version of this instance
	// ended. It is zero if there was none.
	LastReload time.Time
	// Err is why the last reload failed. It is nil if it succeeded, or if there was none. A reload fails for all of its
	// pipelines: if another pipeline is to blame, the error says so and wraps the reason.
	Err error
	// Draining is the number of replaced versions that executions can still reach.
	Draining int
}

// Pipelines yields the instances in force, sorted by name and instance. The key is the name or, if the instance has a
// name, name/instance.
func (r *Registry) Pipelines() iter.Seq2[string, PipelineInfo] {
	return func(yield func(string, PipelineInfo) bool) {
		for _, info := range r.pipelineInfos() {
			if !yield(id{info.Name, info.Instance}.String(), info) {
				return
			}
		}
	}
}

func (r *Registry) pipelineInfos() []PipelineInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var infos []PipelineInfo
	for _, i := range r.instancesInForce() {
		info := i.info
		info.Name, info.Instance, info.Pipeline, info.Draining = i.name, i.instance, i.handle.Pipeline(), len(r.draining[i.id])
		infos = append(infos, info)
	}
	return infos
}

// instancesInForce returns the instances that have a version in force, sorted. The caller holds r.mu.
func (r *Registry) instancesInForce() []*instance {
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

// An id is the name of a pipeline and of its instance.
type id struct{ name, instance string }

func (i id) String() string { return i.source().String() }

func (i id) source() pipeline.Source {
	return pipeline.Source{Pipeline: i.name, Instance: i.instance}
}

// A definition has the build function and the instances of a pipeline.
type definition struct {
	name            string
	defaultInstance string    // the instance that Get returns
	build           BuildFunc // nil: a change has planned the definition, or it was removed
	planned         bool      // the change that runs is about to put it in force
	instances       map[string]*instance
}

// An instance is a pipeline under one instance name, with its handle.
type instance struct {
	id
	definition *definition
	handle     *pipeline.Reloadable
	current    *version     // nil: not built yet, or removed
	firstBuild *firstBuild  // nil: no first build is under way
	removed    bool         // the instance or its definition was removed; a new one can have the same name
	handedOut  atomic.Bool  // Get or GetInstance has returned the handle
	info       PipelineInfo // all but the names, the handle and Draining
}

// isDefault reports whether Get returns the instance.
func (i *instance) isDefault() bool { return i.instance == i.definition.defaultInstance }

// handOut returns the handle to the program and records that it has it.
func (i *instance) handOut() *pipeline.Pipeline {
	if !i.handedOut.Load() { // storing each time would make all callers write to one cache line
		i.handedOut.Store(true)
	}
	return i.handle.Pipeline()
}

// instancesHandedOut returns the instances whose handles the program has, sorted. The caller holds r.mu.
func (d *definition) instancesHandedOut() []*instance {
	var all []*instance
	for _, i := range d.instances {
		if i.handedOut.Load() {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, byID)
	return all
}

// byID compares instances by the names of their pipelines, and then by their own.
func byID(a, b *instance) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.instance, b.instance))
}

func checkDefinition(name string, build BuildFunc) error {
	switch {
	case name == "":
		return errors.New("registry: a pipeline needs a name")
	case build == nil && len(name) <= maxNameLength:
		return fmt.Errorf("registry: pipeline %q: the build function is nil", name)
	}
	return checkLength("pipeline", name)
}

// maxNameLength bounds the names of pipelines and instances, in bytes. Every event, log line and series has such a
// name.
const maxNameLength = 256

func checkLength(what, name string) error {
	if n := len(name); n > maxNameLength {
		return fmt.Errorf("registry: the name of the %s %q… has %d bytes, must have at most %d", what, name[:60], n, maxNameLength)
	}
	return nil
}

// findDefinition returns the definition of that name, or ErrNotDefined if there is none or it has no build function. The
// caller holds r.mu.
func (r *Registry) findDefinition(name string) (*definition, error) {
	if r.closed {
		return nil, ErrClosed
	}
	if d := r.definitions[name]; d != nil && d.build != nil {
		return d, nil
	}
	if len(name) > maxNameLength {
		name = name[:60] + "…"
	}
	return nil, fmt.Errorf("%w: %q", ErrNotDefined, name)
}

// findOrAddDefinition returns the definition of that name. If there is none, it adds one without a build function, with the
// handle that the program has of a removed one. The caller holds r.mu.
func (r *Registry) findOrAddDefinition(name, defaultName string) *definition {
	d := r.definitions[name]
	if d == nil {
		d = &definition{name: name, defaultInstance: defaultName, instances: make(map[string]*instance)}
		r.definitions[name] = d
		if handle := r.removed[name].Value(); handle != nil {
			i := d.findOrAdd(defaultName)
			i.handle = handle
			i.handedOut.Store(true)
		}
		delete(r.removed, name)
	}
	return d
}

// defaultInstanceName returns the instance name that Get uses.
func (r *Registry) defaultInstanceName(name string) (string, error) {
	if r.options.Instance == nil {
		return "", nil
	}
	defaultName := r.options.Instance(name)
	return defaultName, checkLength("instance", defaultName)
}

// findOrAddInstance returns the instance want, and adds it to its definition if it is new. The caller holds r.mu.
func (r *Registry) findOrAddInstance(want id) (*instance, error) {
	d, err := r.findDefinition(want.name)
	if err != nil {
		return nil, err
	}
	if i := d.instances[want.instance]; i != nil {
		return i, nil
	}
	if err := checkLength("instance", want.instance); err != nil {
		return nil, err
	}
	others := len(d.instances) - 1
	if most := r.options.MaxInstances; most > 0 && others >= most {
		return nil, fmt.Errorf("%w: %q has %d", ErrTooManyInstances, want.name, others)
	}
	return d.findOrAdd(want.instance), nil
}

// findOrAdd returns the instance of that name. If there is none, it adds one without a version.
func (d *definition) findOrAdd(name string) *instance {
	i := d.instances[name]
	if i == nil {
		i = &instance{id: id{d.name, name}, definition: d, handle: pipeline.NewReloadable(d.name, name)}
		d.instances[name] = i
	}
	return i
}

// removeDefinition removes a definition. If the program has the handle of the default instance, it is remembered. The caller
// holds r.mu.
func (r *Registry) removeDefinition(d *definition) {
	delete(r.definitions, d.name)
	d.build = nil
	for _, i := range d.instances {
		i.removed = true
	}
	r.forgetDropped()
	if i := d.instances[d.defaultInstance]; i != nil && i.handedOut.Load() {
		r.removed[d.name] = weak.Make(i.handle)
	}
}

// forgetDropped forgets the handles that the program has dropped. The caller holds r.mu.
func (r *Registry) forgetDropped() {
	for name, handle := range r.removed {
		if handle.Value() == nil {
			delete(r.removed, name)
		}
	}
}
