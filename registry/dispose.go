package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A disposal disposes of a version that was replaced, removed or closed.
type disposal struct {
	registry *Registry
	version  *version
	retired  *pipeline.Retired
	drained  chan struct{} // closed when the version is drained or the wait for it has ended
	ended    chan struct{} // closed when no execution can reach the version any more
	after    []*disposal   // the disposals of versions whose executions can still reach this version
}

// disposal returns the disposal of a version that was just replaced. It must be run. The caller holds r.mu.
func (r *Registry) disposal(v *version, retired *pipeline.Retired) *disposal {
	r.closing.disposals.Add(1)
	r.draining[v.instance.id]++
	d := &disposal{registry: r, version: v, retired: retired, drained: make(chan struct{}), ended: make(chan struct{})}
	r.undrained[d] = true
	return d
}

// drainOuterFirst makes versions that have no successor wait for the versions that contain them: an execution on an
// outer version can still reach the inner one. The caller holds r.mu.
func (r *Registry) drainOuterFirst(retired []*disposal) {
	inner := make(byHandle)
	disposals := make(map[*version]*disposal)
	for _, d := range retired {
		if d.version.instance.current == nil {
			inner[d.version.instance.handle.Pipeline()] = d.version
			disposals[d.version] = d
		}
	}
	if len(inner) == 0 {
		return
	}
	for outer := range r.undrained {
		inside, _ := inner.split(outer.version.contains)
		for _, v := range inside {
			disposals[v].after = append(disposals[v].after, outer)
		}
	}
}

// run waits for the last execution and disposes of the version. The steps are deferred, so that all of them run even
// if a function of the program calls [runtime.Goexit].
func (d *disposal) run() {
	r := d.registry
	goid := goroutine.ID()
	r.setDisposing(goid, true)
	defer d.end(goid)
	var errs []error
	defer func() { d.report(errs) }()
	defer func() {
		r.disposeOf(d.version, d.retired.Close, func(err error) { errs = append(errs, err) })
	}()
	if err := d.drain(); err != nil {
		errs = append(errs, err)
	}
	r.mu.Lock()
	delete(r.undrained, d)
	r.mu.Unlock()
	close(d.drained)
}

// setDisposing records whether the goroutine goid runs a disposal. A Close on such a goroutine does not wait: it
// would wait for itself.
func (r *Registry) setDisposing(goid uint64, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if does {
		r.disposing[goid] = true
	} else {
		delete(r.disposing, goid)
	}
}

// report reports what went wrong.
func (d *disposal) report(errs []error) {
	err := errors.Join(errs...)
	if err == nil {
		return
	}
	r, i := d.registry, d.version.instance.id
	r.mu.Lock()
	if r.closed {
		r.failed = append(r.failed, fmt.Errorf("registry: disposing of pipeline %s: %w", i, err))
	}
	r.mu.Unlock()
	r.reportFailure(context.Background(), i, EventDisposeFailed, err)
}

// end calls Forget of the Listener when no execution can report events of the version any more. Close does
// not wait for executions that have outlived [Options.DrainTimeout].
func (d *disposal) end(goid uint64) {
	r := d.registry
	closeNeedNotWait := sync.OnceFunc(r.closing.disposals.Done)
	defer closeNeedNotWait()
	defer r.setDisposing(goid, false)
	defer r.forget(d.version.instance.id)
	defer close(d.ended)
	wait := func(done <-chan struct{}) {
		select {
		case <-done:
		default:
			closeNeedNotWait()
			<-done
		}
	}
	for _, outer := range d.after {
		wait(outer.ended)
	}
	wait(d.retired.Drained())
}

// drain waits until no execution runs on the version or can still reach it. If DrainTimeout or the context of Close ends
// first and executions still run on the version, it returns ErrDrainTimeout.
func (d *disposal) drain() error {
	ctx, cancel := d.registry.closing.drainContext, func() {}
	if most := d.registry.options.DrainTimeout; most > 0 {
		ctx, cancel = context.WithTimeout(ctx, most)
	}
	defer cancel()
	var drained []<-chan struct{}
	for _, outer := range d.after {
		drained = append(drained, outer.drained)
	}
	for _, c := range append(drained, d.retired.Drained()) {
		select {
		case <-c: // even if ctx has ended, too
			continue
		default:
		}
		select {
		case <-c:
		case <-ctx.Done():
			if n := d.retired.Running(); n > 0 {
				return fmt.Errorf("%w: %d on a version of pipeline %s that is disposed of", ErrDrainTimeout, n, d.version.instance.id)
			}
			return nil
		}
	}
	return nil
}

// disposeOf disposes of a version: it calls the functions of OnDispose in reverse order, closes what the strategies
// own, and releases the limiters. It calls failed with what goes wrong. A function that calls [runtime.Goexit] does
// not keep the others from being called.
func (r *Registry) disposeOf(v *version, closeStrategies func() error, failed func(error)) {
	defer r.release(v.uses, failed)
	defer recovered.Finish(closeStrategies, failed)
	for _, f := range v.disposers { // deferred, so the last one is called first
		defer recovered.Finish(f, func(err error) { failed(fmt.Errorf("OnDispose: %w", err)) })
	}
}

// discard disposes of a build that has never been in force. What goes wrong is reported and returned.
func (r *Registry) discard(ctx context.Context, v *version) (err error) {
	var errs []error
	defer func() {
		if err = errors.Join(errs...); err != nil {
			r.reportFailure(ctx, v.instance.id, EventDisposeFailed, err)
		}
	}()
	r.disposeOf(v, func() error {
		if v.prepared == nil {
			var errs []error
			there := slices.DeleteFunc(v.strategies, func(s pipeline.Strategy) bool { return isnil.Value(s) })
			recovered.CloseAll(there, func(_ int, err error) { errs = append(errs, err) })
			return errors.Join(errs...)
		}
		return v.prepared.Discard()
	}, func(err error) { errs = append(errs, err) })
	return nil
}

// forget is called when a version of that pipeline has no executions any more. If no other version is in force or
// draining, it calls Forget of the Listener.
func (r *Registry) forget(i id) {
	r.mu.Lock()
	r.draining[i]--
	last := r.draining[i] == 0
	if last {
		delete(r.draining, i)
		last = !r.inForce(i)
	}
	r.mu.Unlock()
	if r.hooks.Forget != nil && last {
		recovered.Call("registry: Hooks.Forget", func() { r.hooks.Forget(i.source()) })
	}
}

// inForce reports whether a version of that pipeline is in force. The caller holds r.mu.
func (r *Registry) inForce(i id) bool {
	d := r.definitions[i.name]
	return d != nil && d.instances[i.instance] != nil && d.instances[i.instance].current != nil
}
