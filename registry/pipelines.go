package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weir-go/weir/internal/ctxerr"
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
	name      string
	build     BuildFunc            // nil: a change has planned the definition, or it was removed
	instances map[string]*instance // that of Get has no name
}

// An instance is a pipeline under one instance name, with its handle.
type instance struct {
	id
	definition *definition
	handle     *pipeline.Reloadable
	current    *version     // nil: not built yet, or removed
	firstBuild *firstBuild  // nil: there is none, or it has ended
	removed    bool         // the instance or its definition was removed; a new one can have the same name
	handedOut  atomic.Bool  // Get or GetInstance has returned the handle; changed with the mutex of the registry held
	info       PipelineInfo // all but the names, the handle and Draining
}

// A version is what one run of a build function has made of an instance.
type version struct {
	instance   *instance
	strategies []pipeline.Strategy
	prepared   *pipeline.Prepared   // nil: the build has failed
	contains   []*pipeline.Pipeline // see [contained]
	disposers  []func() error
	uses       map[resourceKey]*resourceUse // the limiters and kept values that it uses
	took       time.Duration                // the duration of the build
	wasInForce bool                         // until it is in force, only its build uses it
	told       []<-chan struct{}            // closed when the Listener was told that it is in force, or stays after a failure
}

// A firstBuild is the first build of an instance. Other callers that want the instance wait for it.
type firstBuild struct {
	done chan struct{} // closed when err is final
	err  error
}

func newFirstBuild() *firstBuild { return &firstBuild{done: make(chan struct{})} }

// endFirstBuild lets those go on who wait for the first build of i. If it has failed, i is removed.
func (n *pipelines) endFirstBuild(i *instance, err error) {
	switch {
	case err == nil, i.removed:
	case i.instance == "":
		n.remove(i.definition)
	default:
		delete(i.definition.instances, i.instance)
	}
	i.firstBuild.err = err
	close(i.firstBuild.done)
	i.firstBuild = nil
}

// instancesHandedOut returns the instances whose handles the program has, sorted.
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

// handOut records that the program has the handle of i. If i was removed meanwhile, handOut returns false: the removal has not
// remembered the handle, so it would not work again.
func (i *instance) handOut() bool {
	if !i.removed {
		i.handedOut.Store(true)
	}
	return !i.removed
}

// byID compares instances by the names of their pipelines, and then by their own.
func byID(a, b *instance) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.instance, b.instance))
}

// pipelines are those of a registry. The caller of its methods holds the mutex of the registry.
type pipelines struct {
	options     *Options
	ready       sync.Map // the instances in force by their id, so that Get and GetInstance take no lock
	definitions map[string]*definition
	// remembered has the handles that Get has returned for names without a definition. If the name is defined again, the handle
	// works again. One that the program has dropped takes no memory after the next removal.
	remembered map[string]weak.Pointer[pipeline.Reloadable]
	closed     <-chan struct{} // of the registry
}

// definition returns the definition of that name. The error is ErrNotDefined if there is none or it has no build function.
func (n *pipelines) definition(name string) (*definition, error) {
	if ctxerr.Closed(n.closed) {
		return nil, ErrClosed
	}
	if d := n.definitions[name]; d != nil && d.build != nil {
		return d, nil
	}
	if len(name) > maxNameLength {
		name = name[:60] + "…"
	}
	return nil, fmt.Errorf("%w: %q", ErrNotDefined, name)
}

// findOrAdd returns the definition of that name. If there is none, it adds one without a build function, with the handle that
// the program has of a removed one.
func (n *pipelines) findOrAdd(name string) *definition {
	d := n.definitions[name]
	if d == nil {
		d = &definition{name: name, instances: make(map[string]*instance)}
		n.definitions[name] = d
		i := d.add("")
		if handle := n.remembered[name].Value(); handle != nil {
			i.handle = handle
			i.handedOut.Store(true)
		}
		delete(n.remembered, name)
	}
	return d
}

// add adds an instance without a version.
func (d *definition) add(name string) *instance {
	i := &instance{id: id{d.name, name}, definition: d, handle: pipeline.NewReloadable(d.name, name)}
	d.instances[name] = i
	return i
}

// define adds a definition with its build function, and returns the instance of Get.
func (n *pipelines) define(name string, build BuildFunc) (*instance, error) {
	if ctxerr.Closed(n.closed) {
		return nil, ErrClosed
	}
	d := n.findOrAdd(name)
	if d.build != nil {
		return nil, fmt.Errorf("%w: %q", ErrDefined, name)
	}
	d.build = build
	return d.instances[""], nil
}

// instance returns an instance, and adds it to its definition if it is new.
func (n *pipelines) instance(want id) (*instance, error) {
	d, err := n.definition(want.name)
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
	if most := n.options.MaxInstances; most > 0 && others >= most {
		return nil, fmt.Errorf("%w: %q has %d", ErrTooManyInstances, want.name, others)
	}
	return d.add(want.instance), nil
}

// remove removes a definition. If the program has the handle of the default instance, it is remembered.
func (n *pipelines) remove(d *definition) {
	delete(n.definitions, d.name)
	d.build = nil
	for _, i := range d.instances {
		i.removed = true
	}
	n.forgetDropped()
	if i := d.instances[""]; i.handedOut.Load() {
		n.remembered[d.name] = weak.Make(i.handle)
	}
}

// forgetDropped forgets the handles that the program has dropped.
func (n *pipelines) forgetDropped() {
	for name, handle := range n.remembered {
		if handle.Value() == nil {
			delete(n.remembered, name)
		}
	}
}

// inForce returns the instances that have a version in force, sorted.
func (n *pipelines) inForce() []*instance {
	var all []*instance
	for _, d := range n.definitions {
		for _, i := range d.instances {
			if i.current != nil {
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, byID)
	return all
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
