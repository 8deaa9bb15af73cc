package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/pipeline"
)

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
// If a build function of a first build, or a function that runs while a version is disposed of, calls Close, Close
// does not wait and returns an error that says so.
func (r *Registry) Close(ctx context.Context) error {
	r.closing.once.Do(r.startClosing)
	select {
	case <-r.closing.done:
		return r.failures()
	default:
	}
	if r.waitsFor(goroutine.ID()) {
		return errors.Join(errCloseInside, r.failures())
	}
	select {
	case <-r.closing.done:
		return r.failures()
	case <-ctx.Done():
		r.closing.drainNow()
		return errors.Join(fmt.Errorf("registry: closing: %w", pipeline.ContextError(ctx)), r.failures())
	}
}

var errCloseInside = errors.New("registry: closing: Close would wait for its caller; closing goes on in the background")

// failures returns what has gone wrong since Close was called.
func (r *Registry) failures() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failed...)
}

// waitsFor reports whether Close waits for a function that runs on the goroutine goid.
func (r *Registry) waitsFor(goid uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return goid != 0 && (r.firstBuilds[goid] != nil || r.disposing[goid])
}

// startClosing retires all pipelines and does not wait: each call of Close waits as long as its own context allows.
func (r *Registry) startClosing() {
	retired, ended := r.retireAll()
	close(r.closing.called)
	for _, d := range retired {
		go d.run()
	}
	go func() {
		defer func() {
			r.closing.firstBuilds.Wait()
			r.closing.disposals.Wait()
			close(r.closing.done)
		}()
		r.reportClosed(ended)
	}()
}

// retireAll leaves every handle without a version.
func (r *Registry) retireAll() (retired []*disposal, ended []Override) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.ready.Clear()
	ended = r.stopOverrides()
	for _, d := range r.definitions {
		for _, i := range d.instances {
			retired = r.retire(retired, i, ErrClosed)
		}
	}
	r.drainOuterFirst(retired)
	return retired, ended
}

// reportClosed reports the overrides that have ended with the registry. If the Listener calls Close, Close does not
// wait.
func (r *Registry) reportClosed(ended []Override) {
	goid := goroutine.ID()
	r.setDisposing(goid, true)
	defer r.setDisposing(goid, false)
	for _, o := range ended {
		// Deferred, so that each is reported even if the Listener calls runtime.Goexit.
		defer r.reportOverrideEnded(context.Background(), o, endedClosed, nil)
	}
}

// retire leaves the handle of an instance without a version and appends its disposal. The caller holds r.mu.
func (r *Registry) retire(retired []*disposal, i *instance, why error) []*disposal {
	r.setNotReady(i)
	old := i.handle.Retire(why)
	if i.current != nil {
		retired = append(retired, r.disposal(i.current, old))
		i.current = nil
	}
	return retired
}
