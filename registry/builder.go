package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/interpose"
	"github.com/weir-go/weir/pipeline"
)

// A BuildFunc builds one version of a pipeline: it reads its configuration, adds strategies to b and returns. It runs
// when the pipeline is first asked for and at every reload. It must not use b after it has returned. It does not run
// concurrently for one instance of a pipeline, with two exceptions. [Registry.Apply] does not wait for a first build of
// a pipeline that it defines. And a reload that begins during a first build has that build repeated. After two
// repetitions, the next reload builds the pipeline itself while the first build still runs.
//
// It must not wait for a reload of the registry. A reload that begins on its goroutine returns [ErrReloading]. The
// last paragraph of [Registry.Reload] says what happens on other goroutines.
//
// If it returns an error, panics (the error is a [PanicError]) or adds strategies that are not valid, the build is
// discarded: the functions given to [Builder.OnDispose] run, what the strategies own is closed, and limiters that
// only this build has asked for are closed.
type BuildFunc func(b *Builder) error

// A Builder is passed to a [BuildFunc]. It is not safe for concurrent use.
type Builder struct {
	// Name and Instance are those of the pipeline that is built.
	Name, Instance string

	registry   *Registry
	change     *change     // the change that the build is part of; nil: it is a first build
	firstBuild *firstBuild // nil: it is part of a change
	version    *version    // what is built
	problems   []error
}

// Add adds strategies, the outermost first.
func (b *Builder) Add(s ...pipeline.Strategy) {
	b.version.strategies = append(b.version.strategies, s...)
}

// OnDispose registers f to be called once when this version is disposed of: when it was replaced, removed or closed
// and its last execution has ended, or when the build is discarded. The function that was registered last is called
// first. An error or a panic is reported as [EventDisposeFailed], and the other functions are called.
func (b *Builder) OnDispose(f func() error) {
	if f == nil {
		b.problem(errors.New("OnDispose: the function is nil"))
		return
	}
	b.version.disposers = append(b.version.disposers, f)
}

// Pipeline returns another pipeline of the registry, to be embedded in this one with [pipeline.Embed]. If it has not
// been built, Pipeline builds it. The error is [ErrCycle] if the pipeline would contain itself.
func (b *Builder) Pipeline(name string) (*pipeline.Pipeline, error) {
	if b.change != nil {
		if i := b.change.defaults[name]; i != nil {
			return i.handle.Pipeline(), nil // the same change builds it
		}
	}
	i, err := b.registry.find(name, b.firstBuild)
	if err != nil {
		return nil, err
	}
	return i.handle.Pipeline(), nil
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
	took       time.Duration                // the duration of the build; only in a change
}

// build runs a build function, for a change or a first build. The version that it returns must be put in force or
// discarded.
func (r *Registry) build(i *instance, f BuildFunc, c *change, first *firstBuild) (made *version, err error) {
	v := &version{instance: i, uses: make(map[resourceKey]*resourceUse)}
	b := &Builder{Name: i.name, Instance: i.instance, registry: r, change: c, firstBuild: first, version: v}
	defer func() { // also if f calls runtime.Goexit
		if made != nil {
			return
		}
		ctx := context.Background()
		if c != nil {
			ctx = c.ctx
		}
		err = errors.Join(err, r.discard(ctx, v))
	}()
	if err := b.run(f); err != nil {
		return nil, fmt.Errorf("registry: building pipeline %s: %w", i.id, err)
	}
	return v, nil
}

// interposer returns the listener if it is that of package simulate, else nil.
func (r *Registry) interposer() interpose.Interposer {
	i, _ := r.options.Listener.(interpose.Interposer)
	return i
}

// run calls f and prepares the pipeline. A panic of f is a PanicError.
func (b *Builder) run(f BuildFunc) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if err := errors.Join(f(b), errors.Join(b.problems...)); err != nil {
		return err
	}
	v := b.version
	strategies := v.strategies
	if i := b.registry.interposer(); i != nil {
		strategies = i.Interpose(strategies)
	}
	c := pipeline.Config{Name: b.Name, Instance: b.Instance, Strategies: strategies, Listener: b.registry.options.Listener}
	v.prepared, err = c.Prepare()
	if wrong, ok := errors.AsType[*weir.OptionsError](err); ok {
		wrong.Name = "" // build begins the error with the name
	}
	v.contains = contained(v.strategies)
	return err
}
