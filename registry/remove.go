package registry

import (
	"context"
	"fmt"
	"runtime"
	"weak"

	"github.com/weir-go/weir/pipeline"
)

// Remove removes the definitions of those names with all their instances. See [Change.Remove]. If a name is unknown,
// the error is [ErrNotDefined], and nothing is removed.
func (r *Registry) Remove(ctx context.Context, names ...string) error {
	return r.apply(ctx, Change{Remove: names}, false)
}

// RemoveInstance removes an instance that [Registry.GetInstance] has made. Executions on its handle return
// [ErrRemoved] from then on; running executions go on to their end. The next GetInstance of that name makes a new
// instance with another handle. For the instance of [Registry.Get] it returns an error, because that one can only be
// removed with its definition. If there is no such instance, RemoveInstance does nothing.
func (r *Registry) RemoveInstance(name, instance string) error {
	r.mu.Lock()
	retired, err := r.retireInstance(name, instance)
	r.mu.Unlock()
	r.afterCommit(context.Background(), committed{retired: retired})
	return err
}

// retireInstance removes one instance. The caller holds r.mu.
func (r *Registry) retireInstance(name, instance string) ([]*disposal, error) {
	if r.closed {
		return nil, ErrClosed
	}
	d := r.definitions[name]
	if d == nil || d.instances[instance] == nil {
		return nil, nil
	}
	i := d.instances[instance]
	if instance == d.defaultInstance {
		return nil, fmt.Errorf("registry: %s is what Get returns: remove the pipeline instead", i.id)
	}
	i.removed = true
	delete(d.instances, instance)
	retired := r.retire(nil, i, ErrRemoved)
	r.drainOuterFirst(retired)
	return retired, nil
}

// A removedHandle is the handle that [Registry.Get] has returned for a name without a definition. If the name is
// defined again, the handle works again. The registry holds it weakly: a handle that the program has dropped takes no
// memory.
type removedHandle struct {
	defaultInstance string
	handle          weak.Pointer[pipeline.Reloadable]
	handedOut       bool
	cleanup         runtime.Cleanup
}

// removeDefinition removes a definition. If the program may have the handle of the default instance, it is
// remembered. The caller holds r.mu.
func (r *Registry) removeDefinition(d *definition) {
	delete(r.definitions, d.name)
	d.build = nil
	for _, i := range d.instances {
		i.removed = true
	}
	i := d.instances[d.defaultInstance]
	if i == nil || !i.wasInForce {
		return
	}
	h := &removedHandle{defaultInstance: d.defaultInstance, handle: weak.Make(i.handle), handedOut: i.handedOut.Load()}
	// The cleanup holds the registry weakly. Otherwise a registry that has restored the handle would never be freed, nor
	// would the handle.
	h.cleanup = runtime.AddCleanup(i.handle, func(d droppedHandle) { d.forget() }, droppedHandle{weak.Make(r), d.name})
	r.removed[d.name] = h
}

// restoreHandle gives a new definition the handle that the program has of a removed one. The caller holds r.mu.
func (r *Registry) restoreHandle(d *definition) {
	h := r.removed[d.name]
	if h == nil {
		return
	}
	delete(r.removed, d.name)
	h.cleanup.Stop()
	handle := h.handle.Value()
	if handle == nil {
		return
	}
	d.defaultInstance = h.defaultInstance
	i := d.add(d.defaultInstance)
	i.handle, i.wasInForce = handle, true
	i.handedOut.Store(h.handedOut)
}

// A droppedHandle names a handle that the program has dropped.
type droppedHandle struct {
	registry weak.Pointer[Registry]
	name     string
}

func (d droppedHandle) forget() {
	r := d.registry.Value()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.removed[d.name]; h != nil && h.handle.Value() == nil {
		delete(r.removed, d.name)
	}
}
