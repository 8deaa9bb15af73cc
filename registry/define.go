package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/pipeline"
)

// Define builds a pipeline and puts it in force under that name. If build fails, nothing is defined. The error is
// [ErrDefined] if the name is taken. If [Registry.Apply] defines the name at the same time, its function holds. A
// pipeline that build asks for by [Builder.Pipeline] must be in force; [Registry.Apply] defines several that contain each other.
// Names of pipelines and instances have at most 256 bytes.
//
// Define waits for other builds and changes, such as a [Registry.Reload]. A [BuildFunc] must not call it.
func (r *Registry) Define(name string, build BuildFunc) error {
	if err := checkDefinition(name, build); err != nil {
		return err
	}
	r.mu.Lock()
	i, err := r.pipelines.define(name, build)
	if err == nil {
		i.firstBuild = newFirstBuild()
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.buildFirst(i)
}

// Get returns the pipeline of that name. The handle stays the same across reloads, and when the name is removed and
// defined again: keep it, and execute everything through it. If the pipeline is being defined, Get waits for its build.
// The error is [ErrNotDefined] if there is no definition, and [ErrClosed] after Close.
//
// A [BuildFunc] must call [Builder.Pipeline] instead, which also finds pipelines that the same change builds. If it calls
// Get for a pipeline that is not in force, Get can wait until the registry is closed.
func (r *Registry) Get(name string) (*pipeline.Pipeline, error) {
	return r.GetInstance(name, "")
}

// GetInstance is [Registry.Get] for one of several instances of a pipeline, which the same function builds: one for each
// region or tenant, for example. If the instance has not been built, GetInstance builds it. If several callers ask for it
// at the same time, it is built once; the others wait. If the build fails, all of them get the error, and the next call
// builds again. If GetInstance has to build, it waits for other builds and changes. The error is [ErrTooManyInstances] if
// there would be more than [Options.MaxInstances]. See [Registry.RemoveInstance].
func (r *Registry) GetInstance(name, instance string) (*pipeline.Pipeline, error) {
	for {
		i, err := r.builtInstance(id{name, instance})
		if err != nil {
			return nil, err
		}
		handedOut := i.handedOut.Load()
		if !handedOut {
			r.mu.Lock()
			handedOut = i.handOut()
			r.mu.Unlock()
		}
		if handedOut {
			return i.handle.Pipeline(), nil
		}
	}
}

// RemoveInstance removes an instance that [Registry.GetInstance] has made. Executions on its handle return [ErrRemoved]
// from then on; running executions go on to their end. The next GetInstance of that name makes a new instance with another
// handle. RemoveInstance waits while limiters or kept values get other options. It returns an error if a pipeline contains
// the instance, and for the instance of [Registry.Get], which can only be removed with its definition. If there is no such
// instance, RemoveInstance does nothing.
func (r *Registry) RemoveInstance(name, instance string) error {
	// Versions that are about to come into force were checked together.
	if err := r.resources.reconfiguring.take(context.Background(), r.closed); err != nil {
		return err
	}
	defer r.resources.reconfiguring.leave()
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctxerr.Closed(r.closed) {
		return ErrClosed
	}
	d := r.pipelines.definitions[name]
	if d == nil || d.instances[instance] == nil {
		return nil
	}
	i := d.instances[instance]
	if i.instance == "" {
		return fmt.Errorf("registry: %s is what Get returns: remove the pipeline instead", i.id)
	}
	if i.current != nil {
		if err := r.pipelines.checkContained(nil, []*version{i.current}); err != nil {
			return err
		}
	}
	i.removed = true
	delete(d.instances, instance)
	r.drains.start(r.drains.retire(ErrRemoved, i))
	return nil
}

// builtInstance returns an instance. If it has not been built, builtInstance builds it or waits for who does.
func (r *Registry) builtInstance(want id) (*instance, error) {
	if i, ok := r.pipelines.ready.Load(want); ok {
		return i.(*instance), nil
	}
	if want.instance != "" { // the pipeline can be being defined
		if _, err := r.builtInstance(id{name: want.name}); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	i, err := r.pipelines.instance(want)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	first := i.firstBuild
	begin := first == nil && i.current == nil
	if begin {
		i.firstBuild = newFirstBuild()
	}
	r.mu.Unlock()
	switch {
	case begin:
		return i, r.buildFirst(i)
	case first == nil: // it is in force by now
		return i, nil
	}
	select {
	case <-first.done:
		return i, first.err
	case <-r.closed:
		return i, ErrClosed
	}
}

// GetOrDefine is [Registry.Get], after [Registry.Define] if the pipeline is not defined. If it is defined, it keeps
// its definition, and build is ignored.
func (r *Registry) GetOrDefine(name string, build BuildFunc) (*pipeline.Pipeline, error) {
	if err := r.Define(name, build); err != nil && !errors.Is(err, ErrDefined) {
		return nil, err
	}
	return r.Get(name)
}

// buildFirst makes the first version of i, unless a change makes one before its turn comes. If the build fails, i is removed.
func (r *Registry) buildFirst(i *instance) error {
	p := newPlan(context.Background(), r)
	p.firstBuildOf = i
	return p.run(func() error {
		switch {
		case i.removed:
			return fmt.Errorf("%w: %s", ErrRemoved, i.id)
		case i.current == nil:
			p.todo[i] = i.definition.build
		}
		return nil
	})
}
