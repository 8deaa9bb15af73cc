package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// defaultDrainTimeout and defaultMaxInstances are the values of options that are 0.
const (
	defaultDrainTimeout = 30 * time.Second
	defaultMaxInstances = 1000
)

// Options are the options of a [Registry]. The zero value has the defaults.
type Options struct {
	// Listener is told of the events of every pipeline of the registry, and of [EventReload] and the other events of the
	// registry. Its Forget is called when a pipeline or instance was removed or
	// closed and its last execution on any version has ended. If the Listener panics at an event of the registry, the
	// panic is logged with [slog.Default] and the change goes on. If nil, events are not reported.
	Listener pipeline.Listener
	// DrainTimeout bounds the wait for the executions on a replaced version. After it, the version is disposed of
	// even if executions still run on it, which is reported as [ErrDrainTimeout]. 0 means 30 s; -1 is no
	// limit.
	DrainTimeout time.Duration
	// MaxInstances is how many instances a definition can have beside the one of [Registry.Get]. 0 means 1000; -1
	// is no limit.
	MaxInstances int
	// ObserveLimiter is called for each limiter of the registry when it comes into force, for example to register
	// gauges, and for each value of [Keep] that is a [limiter.StatisticsProvider], with its Kind and a space before its name. The
	// function that it returns is called when the limiter is closed; it can be nil. ObserveLimiter is not
	// called for partitioned limiters, which have no statistics as a whole. If it panics, the panic is logged with
	// [slog.Default].
	ObserveLimiter func(name string, l limiter.StatisticsProvider) (stop func())
}

// A Registry has named pipelines. Make one with [New]. It is safe for concurrent use.
type Registry struct {
	options  Options
	events   events
	changing turn // of a change or a first build, so that each sees the result of the one before

	mu        sync.Mutex // guards what follows; never held while functions of the program run
	pipelines pipelines
	resources resources
	drains    drains

	closing   sync.Once
	closed    chan struct{} // closed by the first call of Close
	allClosed chan struct{} // closed when Close has nothing more to wait for
}

// New returns a registry without pipelines. If o is nil, the defaults apply.
func New(o *Options) *Registry {
	r := &Registry{changing: make(turn, 1), closed: make(chan struct{}), allClosed: make(chan struct{})}
	if o != nil {
		r.options = *o
		r.events.hooks = pipeline.HooksOf(o.Listener)
	}
	r.options.DrainTimeout = cmp.Or(r.options.DrainTimeout, defaultDrainTimeout)
	r.options.MaxInstances = cmp.Or(r.options.MaxInstances, defaultMaxInstances)
	r.pipelines = pipelines{
		options: &r.options, closed: r.closed,
		definitions: make(map[string]*definition), remembered: make(map[string]weak.Pointer[pipeline.Reloadable]),
	}
	r.resources = resources{
		mu: &r.mu, events: &r.events, closed: r.closed, reconfiguring: make(turn, 1),
		all: make(map[resourceID]*resource), byName: make(map[resourceKey]*resource),
	}
	r.drains = drains{
		mu: &r.mu, events: &r.events, pipelines: &r.pipelines, resources: &r.resources,
		timeout: r.options.DrainTimeout, draining: make(map[id][]*disposal), beingForgotten: make(map[id]chan struct{}),
	}
	r.drains.ctx, r.drains.now = context.WithCancel(context.Background())
	return r
}

// Defined reports whether there is a definition of that name.
func (r *Registry) Defined(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.pipelines.definition(name)
	return err == nil
}

// InUse reports whether Get or GetInstance has returned a handle of the pipeline. If the name was removed and defined
// again, a handle that Get returned before counts if the program still had it.
func (r *Registry) InUse(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.pipelines.definitions[name]
	return d != nil && len(d.instancesHandedOut()) > 0
}

// A PipelineInfo describes an instance of a pipeline.
type PipelineInfo struct {
	// Name and Instance are the names of the pipeline and of its instance.
	Name, Instance string
	// Pipeline is the handle, as [Registry.Get] or [Registry.GetInstance] returns it.
	Pipeline *pipeline.Pipeline
	// Version is the number of the version in force: 1 for the first, and one more for each version that has replaced
	// another. A pipeline that is removed and defined again begins at 1.
	Version int
	// Built is when the version came into force.
	Built time.Time
	// LastReload is when the last [Registry.Reload] or [Registry.Apply] that was to replace a version of this instance
	// ended. It is zero if there was none.
	LastReload time.Time
	// Err is why the last reload failed. It is nil if it succeeded, or if there was none. A reload fails for all of its
	// pipelines: if another pipeline is to blame, the error says so and wraps the reason.
	Err error
	// Draining is the number of replaced versions that executions can still reach.
	Draining int
}

// Pipelines yields the instances in force, sorted by name and instance. The key is the name or, if the instance has a
// name, name/instance.
func (r *Registry) Pipelines() iter.Seq2[string, PipelineInfo] {
	return func(yield func(string, PipelineInfo) bool) {
		var infos []PipelineInfo
		r.mu.Lock()
		for _, i := range r.pipelines.inForce() {
			info := i.info
			info.Name, info.Instance, info.Pipeline, info.Draining = i.name, i.instance, i.handle.Pipeline(), len(r.drains.draining[i.id])
			infos = append(infos, info)
		}
		r.mu.Unlock()
		for _, info := range infos {
			if !yield(id{info.Name, info.Instance}.String(), info) {
				return
			}
		}
	}
}

// Close closes the registry and all its pipelines: executions that begin later return [ErrClosed] with
// [pipeline.ErrClosed]. It waits for changes and first builds that run, whose results are discarded, and for
// executions, at most [Options.DrainTimeout] for each version. Then it disposes of all versions and returns what went wrong.
//
// If ctx ends earlier, Close returns the context's error joined with what went wrong so far, and disposing goes on in
// the background without waiting for executions. Another call waits in the same way and returns the same errors.
//
// With [Builder.Context] or the context of an event of the registry, Close does not wait, and returns an error that says so:
// it would wait for its caller. Functions that get no such context must not wait for Close: those of [Builder.OnDispose] and
// [Options.ObserveLimiter], and InForce and Forget of the Listener.
func (r *Registry) Close(ctx context.Context) error {
	r.closing.Do(r.startClosing)
	var err error
	switch {
	case ctxerr.Closed(r.allClosed):
	case r.events.marked(ctx):
		err = errCloseInside
	default:
		select {
		case <-r.allClosed:
		case <-ctx.Done():
			r.drains.now()
			err = fmt.Errorf("registry: closing: %w", pipeline.ContextError(ctx))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(append([]error{err}, r.drains.failed...)...)
}

var errCloseInside = errors.New("registry: closing: Close would wait for its caller; closing goes on in the background")

// startClosing leaves every handle without a version and does not wait: each call of Close waits as long as its own context
// allows.
func (r *Registry) startClosing() {
	r.mu.Lock()
	close(r.closed)
	var all []*instance
	for _, d := range r.pipelines.definitions {
		all = slices.AppendSeq(all, maps.Values(d.instances))
	}
	retired := r.drains.retire(ErrClosed, all...)
	r.mu.Unlock()
	r.drains.start(retired)
	go func() {
		r.drains.waits.Wait()
		close(r.allClosed)
	}()
}
