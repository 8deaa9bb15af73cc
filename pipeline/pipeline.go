package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// A Pipeline runs callbacks through its strategies. Make one with [New] or
// [Config.Build]; the zero Pipeline and a nil *Pipeline run the callback and
// nothing else. It is safe for concurrent use, and must not be copied.
type Pipeline struct {
	// What executions run on. Each loads it once and stays with it, so that
	// another version can be put in its place while they run. nil: a zero Pipeline.
	current atomic.Pointer[version]

	closing  sync.Once
	closeErr error // written under closing
}

// A version is what was built from one Config. It never changes.
type version struct {
	source     Source // of the pipeline as a whole: no strategy
	listener   Listener
	strategies []Strategy
	entry      step // stands before the first strategy
	bare       bool // open, without strategies and without a listener
	closed     bool
}

var zeroVersion = &version{bare: true}

// load returns the version that an execution starting now runs on.
func (p *Pipeline) load() *version {
	if p == nil {
		return zeroVersion
	}
	if v := p.current.Load(); v != nil {
		return v
	}
	return zeroVersion
}

// Execute runs fn through the pipeline and returns what comes out. Values that a
// strategy makes up are of no interest here and are dropped.
//
// The error is fn's own unless a strategy replaced it, the error of a context
// that was done before fn could run, or [ErrClosed].
func (p *Pipeline) Execute(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errNilCallback(p)
	}
	if p.load().bare {
		if ctx.Err() != nil {
			return ContextError(ctx)
		}
		return fn(ctx)
	}
	_, err := p.run(ctx, action(fn))
	return err
}

func (p *Pipeline) run(ctx context.Context, c callback) (any, error) {
	v := p.load()
	if v.closed {
		return nil, v.closedError()
	}
	if v.listener != nil {
		return v.runObserved(ctx, c)
	}
	return v.enter(ctx, c)
}

// enter runs what there is, unless ctx is done already.
func (v *version) enter(ctx context.Context, c callback) (any, error) {
	if v.entry.next != nil && ctx.Err() != nil { // Run looks before the callback
		return nil, ContextError(ctx)
	}
	return Next{step: &v.entry, callback: c}.Run(ctx)
}

// runObserved is run where somebody listens. It is a function of its own so that
// nobody else pays for the clock and the defer.
func (v *version) runObserved(ctx context.Context, c callback) (value any, err error) {
	v.entry.report(ctx, Event{Name: EventPipelineExecuting, Severity: Debug})
	began := sinceStart()
	err = ErrAborted // stays if the callback panics or leaves the goroutine
	defer func() {
		v.entry.report(ctx, Event{
			Name:     EventPipelineExecuted,
			Severity: Information,
			Err:      err,
			Duration: sinceStart() - began,
		})
	}()
	value, err = v.enter(ctx, c)
	return value, err
}

// Name returns the name that the pipeline was made with.
func (p *Pipeline) Name() string { return p.load().source.Pipeline }

// Instance returns [Config.Instance].
func (p *Pipeline) Instance() string { return p.load().source.Instance }

// Strategies yields the strategies, outermost first, each with the [Source]
// under which it reports. A pipeline inside the pipeline, see [Embed], is one
// strategy, and has a method Pipeline() *Pipeline.
func (p *Pipeline) Strategies() iter.Seq2[Source, Strategy] {
	v := p.load()
	return func(yield func(Source, Strategy) bool) {
		for i, s := range v.strategies {
			if !yield(v.sourceOf(i), s) {
				return
			}
		}
	}
}

func (v *version) sourceOf(i int) Source {
	s := v.source
	s.Strategy = strategyName(v.strategies[i])
	return s
}

// Close closes the strategies that have a Close method, in order, all of them,
// and returns their errors joined. From then on executions return [ErrClosed].
// Those that run already are not waited for; one that comes back to a strategy
// that is now closed, as a retry's next attempt may, gets that strategy's error.
//
// Calling it again does nothing and returns the same. A strategy closes only
// what it made itself, never a limiter or a pipeline that was passed to it.
func (p *Pipeline) Close() error {
	if p == nil {
		return nil
	}
	p.closing.Do(func() { p.closeErr = p.close() })
	return p.closeErr
}

func (p *Pipeline) close() error {
	open := p.load()
	shut := *open
	shut.closed, shut.bare = true, false
	p.current.Store(&shut)

	var errs []error
	for i, s := range open.strategies {
		if err := closeStrategy(s); err != nil {
			errs = append(errs, fmt.Errorf("pipeline: closing %v: %w", open.sourceOf(i), err))
		}
	}
	return errors.Join(errs...)
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

func (v *version) closedError() error {
	return fmt.Errorf("%w: %s", ErrClosed, orNull(v.source.Pipeline))
}

// processStart is what durations are measured from: time.Since of a time that is
// kept reads only the monotonic clock, and costs half of time.Now.
var processStart = time.Now()

func sinceStart() time.Duration { return time.Since(processStart) }
