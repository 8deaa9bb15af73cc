package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// A Reloadable has a Pipeline whose strategies can be replaced while it is in use. It is what a registry is made of;
// most programs use a registry. Make one with [NewReloadable]. It is safe for concurrent use.
//
// Every execution runs on one version from its beginning to its end. Executions that begin after [Reloadable.Put] has
// returned run on the new version. Executions on the old one are counted, and [Retired] tells when the last one
// has ended.
type Reloadable struct {
	name, instance string
	pipeline       Pipeline
	mu             sync.Mutex // held to replace the version
}

// NewReloadable returns a Reloadable whose Pipeline has no version yet: its executions return [ErrClosed].
func NewReloadable(name, instance string) *Reloadable {
	r := &Reloadable{name: name, instance: instance}
	r.pipeline.reloadable = true
	r.pipeline.current.Store(r.closedVersion(errNotBuilt))
	return r
}

var errNotBuilt = errors.New("it has not been built yet")

// Pipeline returns the pipeline. It is always the same, and only r can close it.
func (r *Reloadable) Pipeline() *Pipeline { return &r.pipeline }

// A Prepared is a version of a pipeline that is valid and ready to run.
type Prepared struct {
	version *version
	used    atomic.Bool // Put was called with it
}

// Prepare makes a version of c for [Reloadable.Put]. Errors are those of [Config.Build].
func (c Config) Prepare() (*Prepared, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Prepared{version: c.compile(newTracker())}, nil
}

// Discard closes the strategies of a version that will not be used.
func (p *Prepared) Discard() error { return p.version.closeStrategies() }

var errPutTwice = errors.New("pipeline: Put was called twice with the same version")

// Put makes p the version that executions run on from now on, and returns the version that it replaces. p keeps the
// name and instance that it was prepared with. If p was put before, into any Reloadable, Put returns an error and
// changes nothing.
func (r *Reloadable) Put(p *Prepared) (*Retired, error) {
	if !p.used.CompareAndSwap(false, true) {
		return nil, errPutTwice
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace(p.version), nil
}

// Retire leaves r without a version: executions return an error that matches [ErrClosed] and also reason, unless
// reason is nil. A later Put gives r a version again.
//
// Executions on a version of another Reloadable that embeds this pipeline still run on the version that was retired,
// until [Retired.Close]. So call Close only when the executions on the embedding versions have ended, too.
func (r *Reloadable) Retire(reason error) *Retired {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.closedVersion(reason)
	old := r.pipeline.current.Load()
	if v.previous = old.previous; old.mode != modeClosed {
		v.previous = new(atomic.Pointer[version])
		v.previous.Store(old)
	}
	retired := r.replace(v)
	retired.previous = v.previous
	return retired
}

// replace makes v the current version. r.mu is held.
func (r *Reloadable) replace(v *version) *Retired {
	old := r.pipeline.current.Swap(v)
	if old.tracker != nil {
		old.tracker.retire()
	}
	return &Retired{version: old}
}

// closedVersion returns a version whose executions return an error that matches [ErrClosed] and also reason, unless
// reason is nil.
func (r *Reloadable) closedVersion(reason error) *version {
	return &version{mode: modeClosed, source: Source{Pipeline: r.name, Instance: r.instance}, closedBy: reason}
}

// A Retired is a version that was replaced.
type Retired struct {
	version  *version
	previous *atomic.Pointer[version] // the previous of the closed version that replaced this one; nil after Put
	closing  onceWithError
}

// Drained returns a channel that is closed when the last execution on the version has ended.
func (r *Retired) Drained() <-chan struct{} {
	if r.version.tracker == nil {
		return closedChannel
	}
	return r.version.tracker.drained
}

var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Running returns how many executions still run on the version.
func (r *Retired) Running() int {
	if r.version.tracker == nil {
		return 0
	}
	return r.version.tracker.running()
}

// Wait waits until the last execution on the version has ended. If ctx ends before, it returns [ContextError].
func (r *Retired) Wait(ctx context.Context) error {
	select {
	case <-r.Drained():
		return nil
	default:
	}
	select {
	case <-r.Drained():
		return nil
	case <-ctx.Done():
		return ContextError(ctx)
	}
}

// Close closes the strategies, as [Pipeline.Close] does. Call it when the version is drained: an execution that still
// runs can come to a closed strategy. A second call does nothing and returns the same error.
func (r *Retired) Close() error {
	return r.closing.do(func() error {
		if r.previous != nil {
			r.previous.CompareAndSwap(r.version, nil)
		}
		return r.version.closeStrategies()
	})
}

// runCounted runs c on the current version, which counts it. v is what load returned before.
func (p *Pipeline) runCounted(ctx context.Context, v *version, c callback) (any, error) {
	v, counted := p.enterCurrent(v)
	if counted == nil {
		return v.run(ctx, c)
	}
	defer v.tracker.leave(counted)
	return v.run(ctx, c)
}

// executeCountedBare is Execute of a v in modeCountedBare.
func executeCountedBare(ctx context.Context, p *Pipeline, v *version, fn func(context.Context) error) error {
	now, counted := p.enterCurrent(v)
	if counted != nil {
		defer now.tracker.leave(counted)
	}
	if now.mode != modeCountedBare { // v was replaced
		_, err := now.run(ctx, action(fn))
		return err
	}
	if ctx.Err() != nil {
		return ContextError(ctx)
	}
	return fn(ctx)
}

// enterCurrent counts an execution on the current version, which is v unless it was replaced, and returns the version
// and the shard to leave. The shard is nil if the version does not count.
func (p *Pipeline) enterCurrent(v *version) (*version, *shard) {
	for v.tracker != nil {
		counted := v.tracker.enter()
		now := p.current.Load()
		if now == v {
			return v, counted
		}
		v.tracker.leave(counted) // v was replaced before the execution was counted
		v = now
	}
	return v, nil
}
