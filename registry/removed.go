package registry

import (
	"runtime"
	"weak"

	"github.com/weir-go/weir/pipeline"
)

// A removedHandle is the handle that [Registry.Get] has returned for a name that has
// no definition any more. Defining the name again revives it. The registry does not
// keep it alive: a name whose handle the program has dropped takes no room.
type removedHandle struct {
	defaultInstance string
	handle          weak.Pointer[pipeline.Reloadable]
	handedOut       bool
	cleanup         runtime.Cleanup
}

// bury takes a definition out, and remembers the handle of its usual instance if it
// has been in force. The registry is locked.
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
	// The cleanup must not keep the registry alive, which has the handle of what is defined again.
	h.cleanup = runtime.AddCleanup(i.handle, func(d droppedHandle) { d.forget() }, droppedHandle{weak.Make(r), d.name})
	r.removed[d.name] = h
}

// revive gives a new definition the handle that the program has of one that was
// removed. The registry is locked.
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
