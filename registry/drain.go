package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// drains are the replaced versions that executions can still reach.
type drains struct {
	mu        *sync.Mutex // of the registry: guards draining, failed and the fields of pipelines
	events    *events
	pipelines *pipelines
	resources *resources
	timeout   time.Duration // see [Options.DrainTimeout]
	draining  map[id][]*disposal
	// beingForgotten has the pipelines whose Forget is being called. The Listener is told of a new one when that has returned.
	beingForgotten map[id]chan struct{}
	failed         []error            // what has gone wrong in disposals since Close was called
	waits          sync.WaitGroup     // what Close waits for: disposals, first builds and changes
	ctx            context.Context    //nolint:containedctx // ends when the context of a Close has ended
	now            context.CancelFunc // ends ctx
}

// A disposal disposes of a version that was replaced, removed or closed.
type disposal struct {
	version *version
	retired *pipeline.Retired
	drained chan struct{} // closed when the version is drained or the wait for it has ended
	ended   chan struct{} // closed when no execution can reach the version any more
	after   []*disposal   // the disposals of versions whose executions can still reach this version
}

// add returns the disposal of a version that was just replaced. The caller holds mu, and then calls start.
func (d *drains) add(v *version, retired *pipeline.Retired) *disposal {
	d.resources.leaveForce(v)
	of := &disposal{version: v, retired: retired, drained: make(chan struct{}), ended: make(chan struct{})}
	d.draining[v.instance.id] = append(d.draining[v.instance.id], of)
	d.waits.Add(1)
	return of
}

// retire leaves the handles of instances without a version, and returns the disposals of the versions. They wait for the
// versions that contain them, which were replaced or retired before or with them: an execution on an outer version can still
// reach the inner one. The caller holds mu, and then calls start.
func (d *drains) retire(why error, all ...*instance) []*disposal {
	var retired []*disposal
	inner := make(map[*pipeline.Pipeline]*disposal)
	for _, i := range all {
		d.pipelines.ready.Delete(i.id)
		old, v := i.handle.Retire(why), i.current
		if i.current = nil; v != nil {
			of := d.add(v, old)
			retired, inner[i.handle.Pipeline()] = append(retired, of), of
		}
	}
	if len(inner) == 0 {
		return nil
	}
	for _, all := range d.draining {
		for _, outer := range all {
			if ctxerr.Closed(outer.drained) {
				continue
			}
			for _, p := range outer.version.contains {
				if of := inner[p]; of != nil {
					of.after = append(of.after, outer)
				}
			}
		}
	}
	return retired
}

// start disposes of versions in the background.
func (d *drains) start(retired []*disposal) {
	for _, of := range retired {
		go d.dispose(of)
	}
}

// dispose waits for the last execution and disposes of the version. Close waits for it, except for executions that have
// outlived [Options.DrainTimeout].
func (d *drains) dispose(of *disposal) {
	err := d.drain(of)
	close(of.drained)
	d.report(context.Background(), of.version, errors.Join(err, d.disposeOf(of.version, of.retired.Close)))
	stragglers := slices.ContainsFunc(of.after, func(outer *disposal) bool { return !ctxerr.Closed(outer.ended) }) || !ctxerr.Closed(of.retired.Drained())
	if stragglers {
		d.waits.Done()
	} else {
		defer d.waits.Done()
	}
	for _, outer := range of.after {
		<-outer.ended
	}
	<-of.retired.Drained()
	close(of.ended)
	for _, told := range of.version.told {
		<-told
	}
	d.forget(of)
}

// drain waits until no execution runs on the version or can still reach it. If DrainTimeout or the context of Close ends
// first and executions still run on the version, it returns ErrDrainTimeout.
func (d *drains) drain(of *disposal) error {
	ctx, cancel := d.ctx, func() {}
	if d.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
	}
	defer cancel()
	for _, outer := range of.after {
		select {
		case <-outer.drained:
		case <-ctx.Done():
		}
	}
	select {
	case <-of.retired.Drained():
	case <-ctx.Done():
	}
	if n := of.retired.Running(); n > 0 {
		return fmt.Errorf("%w: %d on a version of pipeline %s that is disposed of", ErrDrainTimeout, n, of.version.instance.id)
	}
	return nil
}

// disposeOf disposes of a version: it calls the functions of OnDispose in reverse order, closes what the strategies
// own, and releases the limiters.
func (d *drains) disposeOf(v *version, closeStrategies func() error) error {
	var errs []error
	for _, f := range slices.Backward(v.disposers) {
		if err := recovered.Error(f); err != nil {
			errs = append(errs, fmt.Errorf("OnDispose: %w", err))
		}
	}
	errs = append(errs, closeStrategies())
	for _, u := range v.uses {
		errs = append(errs, d.resources.release(u.resource))
	}
	return errors.Join(errs...)
}

// report reports what has gone wrong when a version was disposed of, and lets Close return it.
func (d *drains) report(ctx context.Context, v *version, err error) {
	if err == nil {
		return
	}
	i := v.instance.id
	d.mu.Lock()
	if ctxerr.Closed(d.pipelines.closed) {
		d.failed = append(d.failed, fmt.Errorf("registry: disposing of pipeline %s: %w", i, err))
	}
	d.mu.Unlock()
	d.events.failed(ctx, i.source(), EventDisposeFailed, err)
}

// discard disposes of a build that has never been in force.
func (d *drains) discard(ctx context.Context, v *version) {
	d.report(ctx, v, d.disposeOf(v, func() error {
		if v.prepared != nil {
			return v.prepared.Discard()
		}
		var errs []error
		there := slices.DeleteFunc(v.strategies, func(s pipeline.Strategy) bool { return isnil.Value(s) })
		recovered.CloseAll(there, func(_ int, err error) { errs = append(errs, err) })
		return errors.Join(errs...)
	}))
}

// forget is called when the version has no executions any more. If no other version of the pipeline is in force or draining, it
// calls Forget of the Listener.
func (d *drains) forget(of *disposal) {
	i := of.version.instance.id
	d.mu.Lock()
	d.draining[i] = slices.DeleteFunc(d.draining[i], func(other *disposal) bool { return other == of })
	last := len(d.draining[i]) == 0
	if last {
		delete(d.draining, i)
		_, inForce := d.pipelines.ready.Load(i)
		last = !inForce
	}
	forget := d.events.hooks.Forget
	if forget == nil || !last {
		d.mu.Unlock()
		return
	}
	forgotten := make(chan struct{})
	d.beingForgotten[i] = forgotten
	d.mu.Unlock()
	recovered.Hook("registry: Hooks.Forget", func() { forget(i.source()) })
	d.mu.Lock()
	delete(d.beingForgotten, i)
	d.mu.Unlock()
	close(forgotten)
}
