package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// A Reloadable has a Pipeline whose strategies are replaced while it is in use.
// It is what a registry is made of; most programs want that instead. Make one
// with [NewReloadable]. It is safe for concurrent use.
//
// Every execution runs on one version from its beginning to its end. Those that
// begin after [Reloadable.Put] has returned run on the new version; those that run
// on the old one are counted, and [Retired] tells when the last one has ended.
type Reloadable struct {
	name, instance string
	pipeline       Pipeline
	mu             sync.Mutex // whoever replaces
}

// NewReloadable returns a Reloadable whose Pipeline has no version yet: until
// there is one its executions return [ErrClosed].
func NewReloadable(name, instance string) *Reloadable {
	r := &Reloadable{name: name, instance: instance}
	r.pipeline.reloadable = true
	r.pipeline.current.Store(r.without(errNoVersion))
	return r
}

var errNoVersion = fmt.Errorf("%w: it was not built yet", ErrClosed)

// Pipeline returns the handle. It is the same for ever, and cannot be closed but
// through r.
func (r *Reloadable) Pipeline() *Pipeline { return &r.pipeline }

// A Prepared is a version of a pipeline that is valid and ready to run.
type Prepared struct {
	version *version
	used    bool // guarded by the Reloadable that it was put in
}

// Prepare makes a version of c for [Reloadable.Put]. Errors are those of
// [Config.Build].
func (c Config) Prepare() (*Prepared, error) {
	if problems := c.problems(); len(problems) > 0 {
		return nil, &configError{name: c.Name, problems: problems}
	}
	return &Prepared{version: c.compile(newTracker())}, nil
}

// Discard closes the strategies of a version that will not be used after all.
func (p *Prepared) Discard() error { return p.version.closeStrategies() }

// Put makes p the version that executions run on from now on, and returns the one
// that it replaces. p has the name and instance that it was prepared with. It
// panics if p has been put anywhere before.
func (r *Reloadable) Put(p *Prepared) *Retired {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.used {
		panic("pipeline: this version has been put somewhere already")
	}
	p.used = true
	return r.replace(p.version)
}

// Retire leaves r without a version: executions return an error that is
// [ErrClosed] and why, if why is not nil. Put gives it one again.
//
// Executions of another Reloadable's version that embeds this one still find the
// version that was retired, until that is closed: to close it is for when those, too,
// are drained.
func (r *Reloadable) Retire(why error) *Retired {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.without(why)
	old := r.pipeline.current.Load()
	if v.last = old.last; !old.closed {
		v.last = new(atomic.Pointer[version])
		v.last.Store(old)
	}
	retired := r.replace(v)
	retired.last = v.last
	return retired
}

// runLast is what an execution comes to that meets a version which is closed. One
// on a counted version of an outer pipeline began when there was something here: it
// runs on that, and whoever retired it waits for the outer one.
func (v *version) runLast(ctx context.Context, c callback) (any, error) {
	outer, ok := c.(*rest)
	if !ok || outer.step.tracker == nil || v.last == nil {
		return nil, v.closedError()
	}
	last := v.last.Load()
	if last == nil {
		return nil, v.closedError()
	}
	return last.run(ctx, c)
}

func (r *Reloadable) replace(v *version) *Retired {
	old := r.pipeline.current.Swap(v)
	if old.tracker != nil {
		old.tracker.retire()
	}
	return &Retired{version: old}
}

func (r *Reloadable) without(why error) *version {
	return &version{source: Source{Pipeline: r.name, Instance: r.instance}, closed: true, why: why}
}

// A Retired is a version that was replaced.
type Retired struct {
	version *version
	last    *atomic.Pointer[version] // where those find it who may yet come to it; nil: nobody may
	closing onlyOnce
}

// Drained is closed when the last execution on the version has ended.
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

// Running is how many executions still run on the version.
func (r *Retired) Running() int {
	if r.version.tracker == nil {
		return 0
	}
	return r.version.tracker.running()
}

// Wait waits until the last execution on the version has ended. The error is that
// of the context.
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

// Close closes the strategies, as [Pipeline.Close] does. Call it when the version
// is drained; executions that still run may meet what is closed. Calling it again
// does nothing and returns the same.
func (r *Retired) Close() error {
	return r.closing.do(func() error {
		if r.last != nil {
			r.last.CompareAndSwap(r.version, nil)
		}
		return r.version.closeStrategies()
	})
}

// onlyOnce runs a function once and keeps its error. Unlike a [sync.Once] it lets the function call back:
// while the function runs, other calls return nil at once.
type onlyOnce struct {
	begun atomic.Bool
	err   atomic.Pointer[error]
}

func (o *onlyOnce) do(f func() error) (err error) {
	if o.begun.CompareAndSwap(false, true) {
		err = f()
		o.err.Store(&err)
		return err
	}
	if done := o.err.Load(); done != nil {
		return *done
	}
	return nil
}

// runTracked runs c on the current version, and counts it there.
func (p *Pipeline) runTracked(ctx context.Context, v *version, c callback) (any, error) {
	v, place := p.enter(v)
	if place == nil {
		return v.run(ctx, c)
	}
	defer v.tracker.leave(place)
	return v.run(ctx, c)
}

// executeCounted is Execute where nothing stands between the caller and fn but that
// it is counted.
func executeCounted(ctx context.Context, p *Pipeline, v *version, fn func(context.Context) error) error {
	now, place := p.enter(v)
	if place != nil {
		defer now.tracker.leave(place)
	}
	if !now.direct {
		_, err := now.run(ctx, action(fn))
		return err
	}
	if ctx.Err() != nil {
		return ContextError(ctx)
	}
	return fn(ctx)
}

// enter counts an execution on the current version, which is v unless it was
// replaced, and returns it. A version that does not count has no place.
func (p *Pipeline) enter(v *version) (*version, *part) {
	for v.tracker != nil {
		place := v.tracker.enter()
		now := p.current.Load()
		if now == v {
			return v, place
		}
		v.tracker.leave(place) // it was replaced between the two
		v = now
	}
	return v, nil
}

// closeStrategies closes them in order, all of them, also if one leaves the goroutine.
func (v *version) closeStrategies() (err error) {
	var errs []error
	defer func() { err = errors.Join(errs...) }()
	for i, s := range slices.Backward(v.strategies) {
		defer func() {
			if err := closeStrategy(s); err != nil {
				errs = append(errs, fmt.Errorf("pipeline: closing %v: %w", v.sourceOf(i), err))
			}
		}()
	}
	return nil
}

// closeStrategy makes an error of a panic: the other strategies are to be closed,
// too.
func closeStrategy(s Strategy) (err error) {
	closer, ok := s.(io.Closer)
	if !ok {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return closer.Close()
}
