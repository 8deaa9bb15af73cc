package pipeline

import (
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
	source   Source
	pipeline Pipeline
	mu       sync.Mutex // held to replace the version
}

// NewReloadable returns a Reloadable whose Pipeline has no version yet: its executions return [ErrClosed].
func NewReloadable(name, instance string) *Reloadable {
	r := &Reloadable{source: Source{Pipeline: name, Instance: instance}}
	r.pipeline.reloadable = true
	r.pipeline.current.Store(newClosed(r.source, errNotBuilt, nil))
	return r
}

var errNotBuilt = errors.New("it has not been built yet")

// Pipeline returns the pipeline. It is always the same, and only r can close it.
func (r *Reloadable) Pipeline() *Pipeline { return &r.pipeline }

// A Prepared is a version of a pipeline that is valid and ready to run.
type Prepared struct{ version *version }

// Prepare makes a version of c for [Reloadable.Put]. Errors are those of [Config.Build].
func (c Config) Prepare() (*Prepared, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Prepared{version: c.compile(newTracker())}, nil
}

// Discard closes the strategies of a version that will not be used.
func (p *Prepared) Discard() error { return p.version.closeStrategies() }

// Put makes p the version that executions run on from now on, and returns the version that it replaces. p keeps the
// name and instance that it was prepared with. A Prepared must be put once, into one Reloadable.
func (r *Reloadable) Put(p *Prepared) *Retired {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace(p.version)
}

// Retire leaves r without a version: executions return an error that matches [ErrClosed] and also reason, unless
// reason is nil. A later Put gives r a version again.
//
// Executions on a version of another Reloadable that embeds this pipeline still run on the version that was retired. So
// call [Retired.Close] only when the executions on the embedding versions have ended, too.
func (r *Reloadable) Retire(reason error) *Retired {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.pipeline.current.Load()
	if last.closed {
		last = last.quiet.next.strategy.(closed).retired
	}
	return r.replace(newClosed(r.source, reason, last))
}

// replace makes v the current version. r.mu is held.
func (r *Reloadable) replace(v *version) *Retired {
	old := r.pipeline.current.Swap(v)
	if old.tracker != nil {
		old.tracker.retire()
	}
	return &Retired{version: old}
}

// A Retired is a version that was replaced.
type Retired struct {
	version *version
	closing atomic.Bool // Close was called
}

// Drained returns a channel that is closed when the last execution on the version has ended.
func (r *Retired) Drained() <-chan struct{} {
	if r.version.tracker != nil {
		return r.version.tracker.drained
	}
	drained := make(chan struct{}) // a closed version runs nothing
	close(drained)
	return drained
}

// Running returns how many executions still run on the version.
func (r *Retired) Running() int { return r.version.tracker.running() }

// Close closes the strategies, as [Pipeline.Close] does. Call it when the version is drained: an execution that still
// runs can come to a closed strategy. A second call does nothing and returns nil.
func (r *Retired) Close() error {
	if r.closing.Swap(true) {
		return nil
	}
	return r.version.closeStrategies()
}
