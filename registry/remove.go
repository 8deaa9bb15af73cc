package registry

import (
	"context"
	"fmt"
)

// Remove removes the definitions of those names with all their instances; see
// [Change.Remove]. Unknown names are an [ErrNotDefined], and then nothing is removed.
func (r *Registry) Remove(ctx context.Context, names ...string) error {
	return r.apply(ctx, Change{Remove: names}, false)
}

// RemoveInstance removes one of the instances that [Registry.GetInstance] made; the
// one of [Registry.Get] goes only with its definition. Executions on its handle
// return [ErrRemoved] from now on; the next GetInstance of that name makes a new one
// with another handle. Those that run go on to their end. It does nothing if there
// is no such instance.
func (r *Registry) RemoveInstance(name, instance string) error {
	r.mu.Lock()
	retired, err := r.takeOutInstance(name, instance)
	r.mu.Unlock()
	r.settle(committed{retired: retired})
	return err
}

func (r *Registry) takeOutInstance(name, instance string) ([]*disposal, error) {
	if r.closed {
		return nil, ErrClosed
	}
	d := r.definitions[name]
	if d == nil || d.instances[instance] == nil {
		return nil, nil
	}
	i := d.instances[instance]
	if instance == d.usual {
		return nil, fmt.Errorf("registry: %s is what Get returns: remove the pipeline instead", i.id)
	}
	i.removed = true
	delete(d.instances, instance)
	retired := r.takeOut(nil, i, ErrRemoved)
	r.drainOuterFirst(retired)
	return retired, nil
}
