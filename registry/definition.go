package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
)

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
	build           BuildFunc // nil: not defined yet, or removed
	instances       map[string]*instance
}

// An instance is a pipeline under one instance name, with its handle.
type instance struct {
	id
	definition *definition
	handle     *pipeline.Reloadable
	current    *version    // nil: not built yet, or removed
	firstBuild *firstBuild // nil: no first build is under way
	removed    bool        // the instance or its definition was removed; a new one can have the same name
	wasInForce bool        // a version has been in force, so the program can have the handle
	handedOut  atomic.Bool // Get or GetInstance has returned the handle

	versions   int       // how many versions have been in force
	inForceAt  time.Time // when current came into force
	lastReload time.Time // when the last reload succeeded or failed; zero: there was none
	reloadErr  error     // why the last reload failed; nil: it did not
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
	case len(name) > maxNameLength:
		return checkLength("pipeline", name)
	case build == nil:
		return fmt.Errorf("registry: pipeline %q: the build function is nil", name)
	}
	return nil
}

// maxNameLength bounds the names of pipelines and instances, in bytes. Every event, log line and series has such a
// name.
const maxNameLength = 256

func checkLength(what, name string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("registry: the name of the %s %s, must have at most %d", what, quoteLong(name), maxNameLength)
	}
	return nil
}

// quoteLong returns the beginning and the length of a name that is too long.
func quoteLong(name string) string { return fmt.Sprintf("%q… has %d bytes", name[:60], len(name)) }

// findOrAddDefinition returns the definition of that name. If there is none, it adds one without a build function. The
// caller holds r.mu.
func (r *Registry) findOrAddDefinition(name, defaultName string) *definition {
	d := r.definitions[name]
	if d == nil {
		d = &definition{name: name, defaultInstance: defaultName, instances: make(map[string]*instance)}
		r.restoreHandle(d)
		r.definitions[name] = d
	}
	return d
}

// findDefinition returns the definition of that name, or ErrNotDefined if there is none or it has no build function. The
// caller holds r.mu.
func (r *Registry) findDefinition(name string) (*definition, error) {
	if r.closed {
		return nil, ErrClosed
	}
	d := r.definitions[name]
	switch {
	case d != nil && d.build != nil:
		return d, nil
	case len(name) > maxNameLength:
		return nil, fmt.Errorf("%w: the name %s, must have at most %d", ErrNotDefined, quoteLong(name), maxNameLength)
	default:
		return nil, fmt.Errorf("%w: %q", ErrNotDefined, name)
	}
}

// defaultInstanceName returns the instance name that Get uses. [Options.Instance] is called once for each definition.
func (r *Registry) defaultInstanceName(name string) (string, error) {
	if r.options.Instance == nil {
		return "", nil
	}
	r.mu.Lock()
	defaultName, known := r.knownDefaultInstanceName(name)
	r.mu.Unlock()
	if known {
		return defaultName, nil
	}
	defaultName = r.options.Instance(name)
	return defaultName, checkLength("instance", defaultName)
}

// knownDefaultInstanceName returns the instance name that Get uses, if the name has a definition or the program has the
// handle of a removed one. The caller holds r.mu.
func (r *Registry) knownDefaultInstanceName(name string) (defaultName string, known bool) {
	if d := r.definitions[name]; d != nil {
		return d.defaultInstance, true
	}
	if h := r.removed[name]; h != nil && h.handle.Value() != nil {
		return h.defaultInstance, true
	}
	return "", false
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
	others := len(d.instances)
	if _, there := d.instances[d.defaultInstance]; there {
		others--
	}
	if most := r.options.MaxInstances; want.instance != d.defaultInstance && most > 0 && others >= most {
		return nil, fmt.Errorf("%w: %q has %d", ErrTooManyInstances, want.name, others)
	}
	return d.add(want.instance), nil
}

// add adds an instance without a version.
func (d *definition) add(name string) *instance {
	i := &instance{
		id:         id{d.name, name},
		definition: d,
		handle:     pipeline.NewReloadable(d.name, name),
	}
	d.instances[name] = i
	return i
}
