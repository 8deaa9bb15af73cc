package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A disposal disposes of a version that was replaced, removed or closed.
type disposal struct {
	version *version
	retired *pipeline.Retired
	drained chan struct{} // closed when the version is drained or the wait for it has ended
	ended   chan struct{} // closed when no execution can reach the version any more
	after   []*disposal   // the disposals of versions whose executions can still reach this version
}

// disposal returns the disposal of a version that was just replaced. The caller holds r.mu, and then calls dispose.
func (r *Registry) disposal(v *version, retired *pipeline.Retired) *disposal {
	for key, u := range v.uses {
		if u.inForce--; u.inForce == 0 && r.inForce[key] == u.resource {
			delete(r.inForce, key)
		}
	}
	d := &disposal{version: v, retired: retired, drained: make(chan struct{}), ended: make(chan struct{})}
	r.draining[v.instance.id] = append(r.draining[v.instance.id], d)
	r.closing.disposals.Add(1)
	return d
}

// drainOuterFirst makes versions that have no successor wait for the versions that contain them: an execution on an
// outer version can still reach the inner one. The caller holds r.mu.
func (r *Registry) drainOuterFirst(retired []*disposal) {
	inner := make(map[*pipeline.Pipeline]*disposal)
	for _, d := range retired {
		if d.version.instance.current == nil {
			inner[d.version.instance.handle.Pipeline()] = d
		}
	}
	if len(inner) == 0 {
		return
	}
	for _, all := range r.draining {
		for _, outer := range all {
			if isClosed(outer.drained) {
				continue
			}
			walk(outer.version.contains, func(p *pipeline.Pipeline) bool {
				d := inner[p]
				if d != nil {
					d.after = append(d.after, outer)
				}
				return d != nil
			})
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// dispose waits for the last execution and disposes of the version. Close waits for it, except for executions that have
// outlived [Options.DrainTimeout].
func (r *Registry) dispose(d *disposal) {
	i := d.version.instance.id
	err := r.drain(d)
	close(d.drained)
	if err = errors.Join(err, r.disposeOf(d.version, d.retired.Close)); err != nil {
		r.mu.Lock()
		if r.closed {
			r.failed = append(r.failed, fmt.Errorf("registry: disposing of pipeline %s: %w", i, err))
		}
		r.mu.Unlock()
		r.reportFailure(context.Background(), i, EventDisposeFailed, err)
	}
	stragglers := slices.ContainsFunc(d.after, func(outer *disposal) bool { return !isClosed(outer.ended) }) || !isClosed(d.retired.Drained())
	if stragglers {
		r.closing.disposals.Done()
	} else {
		defer r.closing.disposals.Done()
	}
	for _, outer := range d.after {
		<-outer.ended
	}
	<-d.retired.Drained()
	close(d.ended)
	r.forget(d)
}

// drain waits until no execution runs on the version or can still reach it. If DrainTimeout or the context of Close ends
// first and executions still run on the version, it returns ErrDrainTimeout.
func (r *Registry) drain(d *disposal) error {
	ctx, cancel := r.closing.drainContext, func() {}
	if most := r.options.DrainTimeout; most > 0 {
		ctx, cancel = context.WithTimeout(ctx, most)
	}
	defer cancel()
	for _, outer := range d.after {
		select {
		case <-outer.drained:
		case <-ctx.Done():
		}
	}
	select {
	case <-d.retired.Drained():
	case <-ctx.Done():
	}
	if n := d.retired.Running(); n > 0 {
		return fmt.Errorf("%w: %d on a version of pipeline %s that is disposed of", ErrDrainTimeout, n, d.version.instance.id)
	}
	return nil
}

// disposeOf disposes of a version: it calls the functions of OnDispose in reverse order, closes what the strategies
// own, and releases the limiters.
func (r *Registry) disposeOf(v *version, closeStrategies func() error) error {
	var errs []error
	for _, f := range slices.Backward(v.disposers) {
		if err := recovered.Error(f); err != nil {
			errs = append(errs, fmt.Errorf("OnDispose: %w", err))
		}
	}
	return errors.Join(append(errs, closeStrategies(), r.releaseAll(v))...)
}

// discard disposes of a build that has never been in force, and reports what goes wrong.
func (r *Registry) discard(ctx context.Context, v *version) {
	err := r.disposeOf(v, func() error {
		if v.prepared != nil {
			return v.prepared.Discard()
		}
		var errs []error
		there := slices.DeleteFunc(v.strategies, func(s pipeline.Strategy) bool { return isnil.Value(s) })
		recovered.CloseAll(there, func(_ int, err error) { errs = append(errs, err) })
		return errors.Join(errs...)
	})
	if err != nil {
		r.reportFailure(ctx, v.instance.id, EventDisposeFailed, err)
	}
}

// forget is called when the version has no executions any more. If no other version of the pipeline is in force or draining, it
// calls Forget of the Listener.
func (r *Registry) forget(d *disposal) {
	i := d.version.instance.id
	r.mu.Lock()
	others := slices.DeleteFunc(r.draining[i], func(other *disposal) bool { return other == d })
	last := len(others) == 0
	if r.draining[i] = others; last {
		delete(r.draining, i)
		if def := r.definitions[i.name]; def != nil && def.instances[i.instance] != nil && def.instances[i.instance].current != nil {
			last = false
		}
	}
	r.mu.Unlock()
	if r.hooks.Forget != nil && last {
		recovered.Hook("registry: Hooks.Forget", func() { r.hooks.Forget(i.source()) })
	}
}

// closing is the state of [Registry.Close]. All calls of Close share it.
type closing struct {
	once         sync.Once
	called       chan struct{}      // closed by the first call
	firstBuilds  sync.WaitGroup     // the first builds that run
	disposals    sync.WaitGroup     // the disposals that Close waits for
	done         chan struct{}      // closed when Close has nothing more to wait for
	drainContext context.Context    //nolint:containedctx // ends when the context of a Close has ended
	drainNow     context.CancelFunc // ends drainContext
}

// Close closes the registry and all its pipelines: executions that begin later return [ErrClosed] with
// [pipeline.ErrClosed]. It waits for first builds, whose results are discarded, and for executions, at most
// [Options.DrainTimeout] for each version. Then it disposes of all versions and returns what went wrong.
//
// If ctx ends earlier, Close returns the context's error joined with what went wrong so far, and disposing goes on in
// the background without waiting for executions. Another call waits in the same way and returns the same errors.
//
// With [Builder.Context] or the context of an event of the registry, Close does not wait, and returns an error that says so:
// it would wait for its caller. A function of [Builder.OnDispose] must not wait for Close.
func (r *Registry) Close(ctx context.Context) error {
	r.closing.once.Do(r.startClosing)
	var err error
	switch {
	case isClosed(r.closing.done):
	case r.marked(ctx):
		err = errCloseInside
	default:
		select {
		case <-r.closing.done:
		case <-ctx.Done():
			r.closing.drainNow()
			err = fmt.Errorf("registry: closing: %w", pipeline.ContextError(ctx))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(append([]error{err}, r.failed...)...)
}

var errCloseInside = errors.New("registry: closing: Close would wait for its caller; closing goes on in the background")

// startClosing leaves every handle without a version and does not wait: each call of Close waits as long as its own context
// allows.
func (r *Registry) startClosing() {
	r.mu.Lock()
	r.closed = true
	var done swapped
	for _, d := range r.definitions {
		for _, i := range d.instances {
			r.retire(&done, i, ErrClosed)
		}
	}
	r.drainOuterFirst(done.retired)
	r.mu.Unlock()
	close(r.closing.called)
	for _, d := range done.retired {
		go r.dispose(d)
	}
	go func() {
		r.closing.firstBuilds.Wait()
		r.closing.disposals.Wait()
		close(r.closing.done)
	}()
}
