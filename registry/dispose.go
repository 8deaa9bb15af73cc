package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// A disposal is a version that is not in force any more.
type disposal struct {
	registry *Registry
	build    *build
	retired  *pipeline.Retired
	drained  chan struct{} // closed when it is, or has been waited for for long enough
	after    []*disposal   // versions whose executions may still come to this one
}

// disposal returns the disposal of a version that was just replaced. It is to be
// run. The registry is locked.
func (r *Registry) disposal(b *build, retired *pipeline.Retired) *disposal {
	r.disposals.Add(1)
	r.draining[b.instance.id]++
	d := &disposal{registry: r, build: b, retired: retired, drained: make(chan struct{})}
	r.running[d] = true
	return d
}

// drainOuterFirst has versions that nothing takes the place of wait for those that
// contain them: an execution there may have yet to come to the inner one. The
// registry is locked.
func (r *Registry) drainOuterFirst(retired []*disposal) {
	inner := make(map[*pipeline.Pipeline]*build)
	of := make(map[*build]*disposal)
	for _, d := range retired {
		if d.build.instance.current == nil {
			inner[d.build.instance.handle.Pipeline()] = d.build
			of[d.build] = d
		}
	}
	if len(inner) == 0 {
		return
	}
	for outer := range r.running {
		for _, b := range buildsIn(outer.build.contains, inner) {
			of[b].after = append(of[b].after, outer)
		}
	}
}

// run waits for the last execution, and disposes of the version.
func (d *disposal) run() {
	r := d.registry
	defer r.disposals.Done()
	err := d.drain()
	r.mu.Lock()
	delete(r.running, d)
	r.mu.Unlock()
	close(d.drained)
	err = errors.Join(err, r.disposeOf(d.build, d.retired.Close))
	if err != nil {
		r.failures.add(d.build.instance.id, err)
		r.reportFailure(context.Background(), d.build.instance.id, EventDisposeFailed, err)
	}
	r.forget(d.build.instance.id)
}

// drain waits until no execution runs on the version or may yet come to it, or for
// as long as it may.
func (d *disposal) drain() error {
	began := time.Now()
	for _, outer := range d.after {
		if !d.wait(outer.drained, began) {
			return d.late()
		}
	}
	if !d.wait(d.retired.Drained(), began) {
		return d.late()
	}
	return nil
}

// wait returns false if it has waited for long enough.
func (d *disposal) wait(done <-chan struct{}, began time.Time) bool {
	select {
	case <-done: // needs no timer
		return true
	default:
	}
	var late <-chan time.Time
	if most := d.registry.options.DrainTimeout; most > 0 {
		t := time.NewTimer(most - time.Since(began))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-done:
		return true
	case <-late:
	case <-d.registry.hurry:
	}
	return false
}

// late says how many executions still run, if any do.
func (d *disposal) late() error {
	if n := d.retired.Running(); n > 0 {
		return fmt.Errorf("%w: %d on a version of pipeline %s that is disposed of", ErrDrainTimeout, n, d.build.instance.id)
	}
	return nil
}

// disposeOf disposes of a version: its functions in reverse order, what its
// strategies own, limiters that nobody uses any more.
func (r *Registry) disposeOf(b *build, closeStrategies func() error) error {
	var errs []error
	for _, f := range slices.Backward(b.disposers) {
		if err := guarded(f); err != nil {
			errs = append(errs, fmt.Errorf("OnDispose: %w", err))
		}
	}
	errs = append(errs, closeStrategies())
	errs = append(errs, r.release(b.uses)...)
	return errors.Join(errs...)
}

// discard disposes of a build that never came into force. What goes wrong is
// reported, and returned.
func (r *Registry) discard(ctx context.Context, b *build) error {
	err := r.disposeOf(b, func() error {
		if b.prepared == nil {
			return closeAll(b.strategies)
		}
		return b.prepared.Discard()
	})
	if err != nil {
		r.reportFailure(ctx, b.instance.id, EventDisposeFailed, err)
	}
	return err
}

// forget is called when a version of that pipeline was disposed of. If no other one
// is in force or draining it tells the listener that there will be no more of it.
func (r *Registry) forget(i id) {
	r.mu.Lock()
	r.draining[i]--
	over := r.draining[i] == 0
	if over {
		delete(r.draining, i)
		over = !r.inForce(i)
	}
	r.mu.Unlock()
	if f, ok := r.options.Listener.(interface{ Forget(source pipeline.Source) }); ok && over {
		f.Forget(i.source())
	}
}

// inForce tells whether there is a version of that pipeline. The registry is locked.
func (r *Registry) inForce(i id) bool {
	d := r.definitions[i.name]
	return d != nil && d.instances[i.instance] != nil && d.instances[i.instance].current != nil
}

// failures collects what went wrong while the registry was closing.
type failures struct {
	mu     sync.Mutex
	record bool
	errs   []error
}

func (f *failures) add(i id, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.record {
		f.errs = append(f.errs, fmt.Errorf("registry: disposing of pipeline %s: %w", i, err))
	}
}

func (f *failures) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record = true
}

func (f *failures) all() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// Close closes the registry and all its pipelines: executions that begin later
// return [ErrClosed] with [pipeline.ErrClosed]. It waits for the executions that
// run, each version at most for [Options.DrainTimeout] and none longer than ctx
// allows, disposes of everything, and returns what went wrong.
//
// When ctx ends, what still runs is not waited for any longer: Close returns at
// once with the context's error among the others, and disposing goes on behind it.
// Calling it again, also at the same time, waits in the same way for the same, and
// returns what has gone wrong with it.
func (r *Registry) Close(ctx context.Context) error {
	r.closing.Do(r.startClosing)
	select {
	case <-r.disposed:
		return r.failures.all()
	default:
	}
	select {
	case <-r.disposed:
		return r.failures.all()
	case <-ctx.Done():
		r.hurrying.Do(func() { close(r.hurry) })
		return errors.Join(fmt.Errorf("registry: closing: %w", pipeline.ContextError(ctx)), r.failures.all())
	}
}

// startClosing does not wait for anything: each call of Close does that for as long
// as its own context allows.
func (r *Registry) startClosing() {
	r.failures.start()
	for _, d := range r.closeHandles() {
		go d.run()
	}
	go func() {
		r.disposals.Wait()
		close(r.disposed)
	}()
}

// closeHandles leaves every handle without a version.
func (r *Registry) closeHandles() []*disposal {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.ready.Clear()
	var retired []*disposal
	for _, d := range r.definitions {
		for _, i := range d.instances {
			retired = r.takeOut(retired, i, ErrClosed)
		}
	}
	r.drainOuterFirst(retired)
	return retired
}

// takeOut leaves the handle of an instance without a version. The registry is
// locked.
func (r *Registry) takeOut(retired []*disposal, i *instance, why error) []*disposal {
	r.setNotReady(i)
	old := i.handle.Retire(why)
	if i.current != nil {
		retired = append(retired, r.disposal(i.current, old))
		i.current = nil
	}
	return retired
}
