package registry

import (
	"context"
	"fmt"
)

// Remove removes the definitions of those names with all their instances. See [Change.Remove]. If a name is unknown,
// the error is [ErrNotDefined], and nothing is removed.
func (r *Registry) Remove(ctx context.Context, names ...string) error {
	return r.apply(ctx, Change{Remove: names}, false)
}

// RemoveInstance removes an instance that [Registry.GetInstance] has made. Executions on its handle return
// [ErrRemoved] from then on; those that run go on to their end. The next GetInstance of that name makes a new
// instance with another handle. The instance of [Registry.Get] can only be removed with its definition, which is an
// error here. If there is no such instance, RemoveInstance does nothing.
func (r *Registry) RemoveInstance(name, instance string) error {
	r.mu.Lock()
	retired, err := r.retireInstance(name, instance)
	r.mu.Unlock()
	r.afterCommit(commitResult{retired: retired})
	return err
}

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
