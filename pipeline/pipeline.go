package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/weir-go/weir/internal/clock"
)

// A Pipeline runs callbacks through its strategies. Make one with [New] or
// [Config.Build]; the zero Pipeline and a nil *Pipeline run the callback and
// nothing else. It is safe for concurrent use, and must not be copied.
type Pipeline struct {
	// What executions run on. Each loads it once and stays with it, so that
	// another version can be put in its place while they run. nil: a zero Pipeline.
	current atomic.Pointer[version]

	reloadable bool // it belongs to a Reloadable

	closing onlyOnce
}

// A version is what was built from one Config. It never changes.
type version struct {
	source     Source // of the pipeline as a whole: no strategy
	listener   Listener
	chooser    chooser // the listener, if it is one
	strategies []Strategy
	entry      step // stands before the first strategy
	unheard    step // the same for an execution that the listener does not want to hear of
	uncounted  bool // open, and nobody counts
	direct     bool // open, without strategies and without a listener
	bare       bool // direct and uncounted
	closed     bool
	why        error    // of one that is closed: more about it, or nil
	tracker    *tracker // counts executions; nil: nobody will ask

	// last has, of one that a Reloadable retired to, the version before that, until
	// it is closed, too: see runLast.
	last *atomic.Pointer[version]
}

var zeroVersion = &version{uncounted: true, direct: true, bare: true}

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
	v := p.load()
	if v.bare {
		if ctx.Err() != nil {
			return ContextError(ctx)
		}
		return fn(ctx)
	}
	if v.uncounted { // run without its calls, as nearly all executions go this way
		if v.heard(ctx) {
			_, err := v.runObserved(ctx, action(fn))
			return err
		}
		if ctx.Err() != nil {
			return ContextError(ctx)
		}
		first := v.unheard.next
		if first == nil {
			return fn(ctx)
		}
		_, err := first.strategy.Execute(ctx, Next{step: first, callback: action(fn)})
		return err
	}
	if v.direct {
		return executeCounted(ctx, p, v, fn)
	}
	_, err := p.run(ctx, v, action(fn))
	return err
}

// run runs c on v, which was the current version just now.
func (p *Pipeline) run(ctx context.Context, v *version, c callback) (any, error) {
	if v.tracker != nil {
		return p.runTracked(ctx, v, c)
	}
	return v.run(ctx, c)
}

func (v *version) run(ctx context.Context, c callback) (any, error) {
	if v.closed {
		return v.runLast(ctx, c)
	}
	if v.heard(ctx) {
		return v.runObserved(ctx, c)
	}
	return v.unheard.enter(ctx, c)
}

// heard reports whether somebody listens to an execution.
func (v *version) heard(ctx context.Context) bool {
	return v.listener != nil && (v.chooser == nil || v.chooser.Enabled(ctx))
}

// enter runs what follows the entry s, unless ctx is done already.
func (s *step) enter(ctx context.Context, c callback) (any, error) {
	first := s.next
	if first == nil {
		return Next{step: s, callback: c}.Run(ctx) // which looks before the callback
	}
	if ctx.Err() != nil {
		return nil, ContextError(ctx)
	}
	return first.strategy.Execute(ctx, Next{step: first, callback: c})
}

// runObserved is run where somebody listens. It is a function of its own so that
// nobody else pays for the clock and the defer.
func (v *version) runObserved(ctx context.Context, c callback) (value any, err error) {
	e := Event{Name: EventPipelineExecuting, Severity: SeverityDebug, Source: v.source, Operation: Operation(ctx)}
	v.listener.OnEvent(ctx, e)
	began := clock.Now()
	err = ErrAborted // stays if the callback panics or leaves the goroutine
	defer func() {
		e.Name, e.Severity = EventPipelineExecuted, SeverityInformation
		e.Result, e.Err, e.Duration = value, err, clock.Now()-began
		v.listener.OnEvent(ctx, e)
	}()
	value, err = v.entry.enter(ctx, c)
	return value, err
}

// Name returns the name that the pipeline was made with.
func (p *Pipeline) Name() string { return p.load().source.Pipeline }

// Instance returns [Config.Instance].
func (p *Pipeline) Instance() string { return p.load().source.Instance }

// Closed reports whether executions that begin now return [ErrClosed]: the pipeline was closed, or the
// registry or [Reloadable] that it belongs to has no version of it.
func (p *Pipeline) Closed() bool { return p.load().closed }

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
// Calling it again does nothing and returns the same; while the first call runs, as in
// a Close of a strategy that calls this one, it returns nil at once. A strategy closes
// only what it made itself, never a limiter or a pipeline that was passed to it. A
// pipeline of a registry or a [Reloadable] is not closed, and the error says so.
func (p *Pipeline) Close() error {
	if p == nil {
		return nil
	}
	if p.reloadable {
		return fmt.Errorf("pipeline: %s belongs to a registry or a Reloadable, and is closed by that", cmp.Or(p.Name(), "it"))
	}
	return p.closing.do(p.close)
}

func (p *Pipeline) close() error {
	open := p.load()
	shut := *open
	shut.closed, shut.uncounted, shut.direct, shut.bare = true, false, false, false
	p.current.Store(&shut)

	return open.closeStrategies()
}

func (v *version) closedError() error {
	name := v.source.Pipeline
	switch {
	case v.why == nil && name == "":
		return ErrClosed
	case v.why == nil:
		return fmt.Errorf("%w: %s", ErrClosed, name)
	case errors.Is(v.why, ErrClosed):
		return fmt.Errorf("%s%w", prefixed("pipeline", name), v.why)
	case name == "":
		return fmt.Errorf("%w: %w", ErrClosed, v.why)
	default:
		return fmt.Errorf("%w: %s: %w", ErrClosed, name, v.why)
	}
}
