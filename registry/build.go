package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/interpose"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A BuildFunc builds one version of a pipeline: it reads its configuration, adds strategies to b and returns. It runs
// when the pipeline is defined, for each further instance when [Registry.GetInstance] first asks for it, and at every
// reload. It must not use b after it has returned. It does not run concurrently for one instance of a pipeline, except that
// a change does not wait for the first build of an instance: it builds the instance, too, and its own version holds.
//
// It must not wait for a change of the registry, which would wait for it: [Registry.Reload], [Registry.Apply],
// [Registry.Remove] and [Registry.Close] return an error if they get [Builder.Context] or a context derived from it. With
// another context they wait until that ends. [Registry.Get] and [Registry.GetInstance] of what is being built wait until the
// registry is closed.
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
	registry *Registry
	plan     *plan    // the change that the build is part of; nil: it is a first build
	version  *version // what is built
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
	if b.plan != nil {
		if i := b.plan.defaults[name]; i != nil {
			b.plan.buildInstance(i)
			return i.handle.Pipeline(), nil
		}
	}
	r := b.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.findDefinition(name)
	if err != nil {
		return nil, err
	}
	switch i := d.instances[d.defaultInstance]; {
	case i.current != nil:
		return i.handle.Pipeline(), nil
	case i == b.version.instance:
		return nil, fmt.Errorf("%w: %s", ErrCycle, i.id)
	default:
		return nil, fmt.Errorf("%w: %q is still being built", ErrNotDefined, name)
	}
}

func (b *Builder) problem(err error) { b.problems = append(b.problems, err) }

// A version is what one run of a build function has made of an instance.
type version struct {
	instance   *instance
	strategies []pipeline.Strategy
	prepared   *pipeline.Prepared   // nil: the build has failed
	contains   []*pipeline.Pipeline // the pipelines embedded directly among the strategies
	disposers  []func() error
	uses       map[resourceKey]*resourceUse // the limiters and kept values that it uses
	took       time.Duration                // the duration of the build
	swapped    bool                         // it has been in force; until then only its build uses it
}

// build runs a build function, for a plan or, if p is nil, a first build. ctx is marked. The version that it returns must be put
// in force or discarded; if there is an error, discarded.
func (r *Registry) build(ctx context.Context, i *instance, f BuildFunc, p *plan) (*version, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v := &version{instance: i, uses: make(map[resourceKey]*resourceUse)}
	b := &Builder{Name: i.name, Instance: i.instance, ctx: ctx, registry: r, plan: p, version: v}
	began := time.Now()
	err := recovered.Error(func() error { return b.run(f) })
	v.took = time.Since(began)
	if panicked, ok := errors.AsType[*recovered.Panic](err); ok {
		err = &PanicError{Value: panicked.Value, Stack: panicked.Stack}
	}
	if err != nil {
		return v, fmt.Errorf("registry: building pipeline %s: %w", i.id, err)
	}
	return v, nil
}

// run calls f and prepares the pipeline.
func (b *Builder) run(f BuildFunc) error {
	if err := errors.Join(f(b), errors.Join(b.problems...)); err != nil {
		return err
	}
	v := b.version
	strategies := v.strategies
	if i := b.registry.interposer(); i != nil {
		strategies = i.Interpose(strategies)
	}
	var err error
	c := pipeline.Config{Name: b.Name, Instance: b.Instance, Strategies: strategies, Listener: b.registry.options.Listener}
	v.prepared, err = c.Prepare()
	if wrong, ok := errors.AsType[*weir.OptionsError](err); ok {
		wrong.Name = "" // build begins the error with the name
	}
	v.contains = contained(v.strategies)
	return err
}

// interposer returns the listener if it is that of package simulate, else nil.
func (r *Registry) interposer() interpose.Interposer {
	i, _ := r.options.Listener.(interpose.Interposer)
	return i
}

// A marker is the key of the value in the contexts of functions for which a change or Close of the registry waits.
type marker struct{ registry *Registry }

func (r *Registry) mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, marker{r}, true)
}

// marked reports whether a change or Close would wait for the caller.
func (r *Registry) marked(ctx context.Context) bool { return ctx.Value(marker{r}) != nil }

// A firstBuild is the first build of an instance. Other callers that want the instance wait for it.
type firstBuild struct {
	done chan struct{} // closed when err is final
	err  error
}

// beginFirstBuild lets others wait for the first build of i. The caller holds r.mu, and then calls firstBuild.
func (r *Registry) beginFirstBuild(i *instance) {
	i.firstBuild = &firstBuild{done: make(chan struct{})}
	r.closing.firstBuilds.Add(1)
}

// await waits for a first build; nil is one that has succeeded.
func (r *Registry) await(f *firstBuild) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	case <-r.closing.called:
		return ErrClosed
	}
}

// firstBuild makes the first version of i. If a change that runs meanwhile has made one, that one holds. If the build fails,
// i is removed.
func (r *Registry) firstBuild(i *instance, f BuildFunc) error {
	ctx := r.mark(context.Background())
	v, err := r.build(ctx, i, f, nil)
	stage := func() (staged, bool, error) {
		switch {
		case r.closed:
			return staged{}, false, ErrClosed
		case i.removed:
			return staged{}, false, fmt.Errorf("%w: %s", ErrRemoved, i.id)
		}
		return staged{versions: []*version{v}}, i.current == nil, nil
	}
	var done swapped
	if err == nil {
		done, err = r.swap(ctx, stage)
	}
	// A change that runs may be about to give a limiter the options that this build has read.
	if errors.Is(err, ErrLimiterConflict) && v.prepared != nil && r.take(ctx, r.changing) == nil {
		done, err = r.swap(ctx, stage)
		<-r.changing
	}
	err = r.endFirstBuild(i, err)
	if done.versions == nil {
		r.discard(ctx, v)
	}
	r.closing.firstBuilds.Done()
	r.afterSwap(done)
	return err
}

// endFirstBuild returns how the first build has ended, also to those who wait for it.
func (r *Registry) endFirstBuild(i *instance, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, d := i.firstBuild, i.definition
	i.firstBuild = nil
	switch {
	case i.current != nil:
		err = nil
	case i.removed:
	case !i.isDefault():
		i.removed = true // a change can have built it meanwhile, and must not put it in force
		delete(d.instances, i.instance)
	case d.planned:
		d.build = nil
	default:
		r.removeDefinition(d)
	}
	first.err = err
	close(first.done)
	return err
}
