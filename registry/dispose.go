package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A disposal is a version that is not in force any more.
type disposal struct {
	registry *Registry
	build    *build
	retired  *pipeline.Retired
	drained  chan struct{} // closed when it is, or has been waited for for long enough
	ended    chan struct{} // closed when no execution will come to it any more
	after    []*disposal   // versions whose executions may still come to this one
}

// disposal returns the disposal of a version that was just replaced. It is to be
// run. The registry is locked.
func (r *Registry) disposal(b *build, retired *pipeline.Retired) *disposal {
	r.disposalsRunning.Add(1)
	r.draining[b.instance.id]++
	d := &disposal{registry: r, build: b, retired: retired, drained: make(chan struct{}), ended: make(chan struct{})}
	r.undrained[d] = true
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
	for outer := range r.undrained {
		for _, b := range buildsIn(outer.build.contains, inner) {
			of[b].after = append(of[b].after, outer)
		}
	}
}

// run waits for the last execution, and disposes of the version. What is deferred runs
// also if a function of the program leaves the goroutine.
func (d *disposal) run() {
	r := d.registry
	here := goroutine.ID()
	r.setDisposing(here, true)
	defer d.end(here)
	var errs []error
	defer func() { d.report(errs) }()
	defer func() {
		r.disposeOf(d.build, d.retired.Close, func(err error) { errs = append(errs, err) })
	}()
	if err := d.drain(); err != nil {
		errs = append(errs, err)
	}
	r.mu.Lock()
	delete(r.undrained, d)
	r.mu.Unlock()
	close(d.drained)
}

// disposes notes that versions are disposed of on that goroutine, or not any more.
func (r *Registry) setDisposing(here uint64, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if does {
		r.disposing[here] = true
	} else {
		delete(r.disposing, here)
	}
}

// report reports what went wrong.
func (d *disposal) report(errs []error) {
	err := errors.Join(errs...)
	if err == nil {
		return
	}
	r, i := d.registry, d.build.instance.id
	r.failures.add(i, err)
	r.reportFailure(context.Background(), i, EventDisposeFailed, err)
}

// end tells the listener when there will be no more events of the version. Executions
// that have outlived [Options.DrainTimeout] still report some; Close does not wait for
// them.
func (d *disposal) end(here uint64) {
	r := d.registry
	waited := false
	defer func() {
		close(d.ended)
		defer func() {
			r.setDisposing(here, false)
			if !waited {
				r.disposalsRunning.Done()
			}
		}()
		r.forget(d.build.instance.id)
	}()
	late := func(over <-chan struct{}) {
		select {
		case <-over:
			return
		default:
		}
		if !waited {
			waited = true
			r.disposalsRunning.Done()
		}
		<-over
	}
	for _, outer := range d.after {
		late(outer.ended)
	}
	late(d.retired.Drained())
}

// drain waits until no execution runs on the version or may yet come to it, or for
// as long as it may.
func (d *disposal) drain() error {
	began := time.Now()
	for _, outer := range d.after {
		if !d.wait(outer.drained, began) {
			return d.overdue()
		}
	}
	if !d.wait(d.retired.Drained(), began) {
		return d.overdue()
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
	case <-d.registry.drainNow:
	}
	return false
}

// late says how many executions still run, if any do.
func (d *disposal) overdue() error {
	if n := d.retired.Running(); n > 0 {
		return fmt.Errorf("%w: %d on a version of pipeline %s that is disposed of", ErrDrainTimeout, n, d.build.instance.id)
	}
	return nil
}

// disposeOf disposes of a version: its functions in reverse order, what its
// strategies own, limiters that no build uses any more. failed is called with what goes
// wrong. A function that leaves the goroutine does not keep the others from being called.
func (r *Registry) disposeOf(b *build, closeStrategies func() error, failed func(error)) {
	defer r.release(b.uses, failed)
	defer finish(closeStrategies, failed)
	for _, f := range b.disposers { // the last one is called first
		defer finish(f, func(err error) { failed(fmt.Errorf("OnDispose: %w", err)) })
	}
}

var errHookLeft = errors.New("it left its goroutine")

// finish calls f, and failed if f fails, panics or leaves the goroutine.
func finish(f func() error, failed func(error)) {
	err := errHookLeft
	defer func() {
		if err != nil {
			failed(err)
		}
	}()
	err = guarded(f)
}

// discard disposes of a build that never came into force. What goes wrong is
// reported, and returned.
func (r *Registry) discard(ctx context.Context, b *build) (err error) {
	var errs []error
	defer func() {
		if err = errors.Join(errs...); err != nil {
			r.reportFailure(ctx, b.instance.id, EventDisposeFailed, err)
		}
	}()
	r.disposeOf(b, func() error {
		if b.prepared == nil {
			return closeAll(b.strategies)
		}
		return b.prepared.Discard()
	}, func(err error) { errs = append(errs, err) })
	return nil
}

// forget is called when the executions on a version of that pipeline have ended. If no
// other version is in force or draining it tells the listener that there will be no more
// events of it.
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
		recovered.Call("registry: Listener.Forget", func() { f.Forget(i.source()) })
	}
}

// inForce reports whether there is a version of that pipeline. The registry is locked.
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

// Close closes the registry and all its pipelines: executions that begin later return [ErrClosed] with
// [pipeline.ErrClosed]. It waits for first builds, whose results are discarded, and for executions, at most
// [Options.DrainTimeout] for each version. Then it disposes of all versions and returns what went wrong.
//
// If ctx ends earlier, Close returns the context's error joined with what went wrong so far, and disposing goes on in
// the background without waiting for executions. Another call waits in the same way and returns the same errors.
//
// If a build function of a first build, or a function that runs while a version is disposed of, calls Close, Close
// does not wait and returns an error that says so.
func (r *Registry) Close(ctx context.Context) error {
	r.closeOnce.Do(r.startClosing)
	select {
	case <-r.allDisposed:
		return r.failures.all()
	default:
	}
	if r.waitsFor(goroutine.ID()) {
		return errors.Join(errCloseInside, r.failures.all())
	}
	select {
	case <-r.allDisposed:
		return r.failures.all()
	case <-ctx.Done():
		r.drainNowOnce.Do(func() { close(r.drainNow) })
		return errors.Join(fmt.Errorf("registry: closing: %w", pipeline.ContextError(ctx)), r.failures.all())
	}
}

var errCloseInside = errors.New("registry: closing: the caller is one of those that Close waits for; it goes on behind it")

// waitsFor reports whether Close waits for what runs on that goroutine.
func (r *Registry) waitsFor(here uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return here != 0 && (r.firstBuilds[here] != nil || r.disposing[here])
}

// startClosing does not wait for anything: each call of Close does that for as long
// as its own context allows.
func (r *Registry) startClosing() {
	r.failures.start()
	retired := r.retireAll()
	close(r.closeCalled)
	for _, d := range retired {
		go d.run()
	}
	go func() {
		r.firstBuildsRunning.Wait()
		r.disposalsRunning.Wait()
		close(r.allDisposed)
	}()
}

// closeHandles leaves every handle without a version.
func (r *Registry) retireAll() []*disposal {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.ready.Clear()
	var retired []*disposal
	for _, d := range r.definitions {
		for _, i := range d.instances {
			retired = r.retire(retired, i, ErrClosed)
		}
	}
	r.drainOuterFirst(retired)
	return retired
}

// takeOut leaves the handle of an instance without a version. The registry is
// locked.
func (r *Registry) retire(retired []*disposal, i *instance, why error) []*disposal {
	r.setNotReady(i)
	old := i.handle.Retire(why)
	if i.current != nil {
		retired = append(retired, r.disposal(i.current, old))
		i.current = nil
	}
	return retired
}
