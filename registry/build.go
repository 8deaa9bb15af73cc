package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A BuildFunc builds one version of a pipeline: it reads its configuration, adds strategies to b and returns. It runs
// when the pipeline is defined, for each further instance when [Registry.GetInstance] first asks for it, and at every
// reload. It must not use b after it has returned. One build runs at a time: a BuildFunc that waits, for a network for example,
// holds up other builds.
//
// It must not wait for a change of the registry or for a first build, which would wait for it: [Registry.Reload],
// [Registry.Apply], [Registry.Remove] and [Registry.Close] return an error if they get [Builder.Context] or a context derived
// from it. With another context they wait until that ends. [Registry.Define], and [Registry.Get] and [Registry.GetInstance] of
// what is not in force, can wait until the registry is closed.
//
// If it returns an error, panics (the error is a [PanicError]), calls [runtime.Goexit] or adds strategies that are not
// valid, the build is discarded: the functions given to [Builder.OnDispose] run, what the strategies own is closed, and
// limiters that only this build has asked for are closed.
type BuildFunc func(b *Builder) error

// A Builder is passed to a [BuildFunc]. It is not safe for concurrent use.
type Builder struct {
	// Name and Instance are those of the pipeline that is built.
	Name, Instance string

	ctx      context.Context //nolint:containedctx // a Builder is used for one call
	plan     *plan           // the change that the build is part of
	version  *version        // what is built
	problems []error
}

// Context returns the context of the build: that of the [Registry.Reload] or [Registry.Apply] that it is part of. It ends
// when the [BuildFunc] has returned. Calls of the registry that would wait for the build return an error if they get it.
func (b *Builder) Context() context.Context { return b.ctx }

// Add adds strategies, the outermost first.
func (b *Builder) Add(s ...pipeline.Strategy) {
	b.version.strategies = append(b.version.strategies, s...)
}

// OnDispose registers f to be called once when this version is disposed of: when it was replaced, removed or closed
// and its last execution has ended, or when the build is discarded. The function that was registered last is called
// first. An error or a panic is reported as [EventDisposeFailed], and the other functions are called. [Registry.Close] waits
// for f, so f must not wait for Close.
func (b *Builder) OnDispose(f func() error) {
	if f == nil {
		b.problem(errors.New("OnDispose: the function is nil"))
		return
	}
	b.version.disposers = append(b.version.disposers, f)
}

// Pipeline returns another pipeline of the registry, to be embedded in this one with [pipeline.Embed]. It must be in force, or
// be defined by the same change, which then builds it first. The error is [ErrNotDefined] if it is neither. If the pipeline
// would contain itself, the change fails with [ErrCycle].
func (b *Builder) Pipeline(name string) (*pipeline.Pipeline, error) {
	p, r := b.plan, b.plan.registry
	var i *instance
	inForce := false
	r.mu.Lock()
	_, err := r.pipelines.definition(name)
	if d := r.pipelines.definitions[name]; d != nil { // also one that this change is about to define
		i = d.instances[""]
		inForce = i.current != nil
	}
	r.mu.Unlock()
	_, builds := p.todo[i]
	switch {
	case i != nil && i == p.firstBuildOf:
		return nil, fmt.Errorf("%w: %s", ErrCycle, i.id)
	case builds:
		p.buildInstance(i)
	case err != nil:
		return nil, err
	case !inForce:
		return nil, fmt.Errorf("%w: %q is still being built", ErrNotDefined, name)
	}
	return i.handle.Pipeline(), nil
}

func (b *Builder) problem(err error) { b.problems = append(b.problems, err) }

// buildVersion runs a build function. The version that it returns must be put in force or discarded; if there is an error,
// discarded.
func (p *plan) buildVersion(i *instance, f BuildFunc) (*version, error) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	v := &version{instance: i, told: []<-chan struct{}{p.told}, uses: make(map[resourceKey]*resourceUse)}
	b := &Builder{Name: i.name, Instance: i.instance, ctx: ctx, plan: p, version: v}
	began := time.Now()
	err := recovered.Error(func() error { return f(b) })
	if err = errors.Join(append([]error{err}, b.problems...)...); err == nil {
		err = recovered.Error(b.prepare)
	}
	v.took = time.Since(began)
	if err != nil {
		return v, fmt.Errorf("registry: building pipeline %s: %w", i.id, err)
	}
	return v, nil
}

// prepare prepares the pipeline of the strategies.
func (b *Builder) prepare() error {
	v := b.version
	strategies := v.strategies
	// Package simulate puts its own steps between strategies, see package deterministic.
	if l, ok := b.plan.registry.options.Listener.(interface {
		Interpose([]pipeline.Strategy) []pipeline.Strategy
	}); ok {
		strategies = l.Interpose(strategies)
	}
	var err error
	c := pipeline.Config{Name: b.Name, Instance: b.Instance, Strategies: strategies, Listener: b.plan.registry.options.Listener}
	v.prepared, err = c.Prepare()
	if wrong, ok := errors.AsType[*weir.OptionsError](err); ok {
		wrong.Name = "" // build begins the error with the name
	}
	if err == nil {
		v.contains = contained(b.plan.registry, v.strategies)
	}
	return err
}

// contained returns the pipelines that are embedded among the strategies, and those in pipelines of the program. What is in a
// pipeline of the registry depends on its version.
func contained(r *Registry, strategies []pipeline.Strategy) []*pipeline.Pipeline {
	var all []*pipeline.Pipeline
	for _, s := range strategies {
		e, ok := s.(interface{ Pipeline() *pipeline.Pipeline })
		if !ok {
			continue
		}
		embedded := e.Pipeline()
		all = append(all, embedded)
		r.mu.Lock()
		own := r.pipelines.has(embedded)
		r.mu.Unlock()
		if !own {
			var inner []pipeline.Strategy
			for _, s := range embedded.Strategies() {
				inner = append(inner, s)
			}
			all = append(all, contained(r, inner)...)
		}
	}
	return all
}

// has reports whether p is a pipeline of the registry.
func (n *pipelines) has(p *pipeline.Pipeline) bool {
	d := n.definitions[p.Name()]
	return d != nil && d.instances[p.Instance()] != nil && d.instances[p.Instance()].handle.Pipeline() == p
}
