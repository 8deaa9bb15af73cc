package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
)

// A Pipeline runs callbacks through its strategies. Make one with [New] or [Config.Build]. The zero Pipeline and a nil
// *Pipeline run the callback and nothing else. It is safe for concurrent use, and must not be copied.
type Pipeline struct {
	// current is what executions run on. Each execution loads it once, so that a Reloadable can replace it while they
	// run. It is nil in a zero Pipeline.
	current atomic.Pointer[version]

	reloadable bool // it belongs to a Reloadable

	closing onceWithError
}

// A version is what one Config was compiled to. It never changes.
type version struct {
	mode       mode
	source     Source   // the name and instance of the pipeline, without a strategy
	listener   Listener // the part of Config.Listener that gets the events of every execution; nil if there is none
	enabler    enabler  // the listener if it is an enabler, else nil
	strategies []Strategy
	tracker    *tracker // counts the executions of a Reloadable's version, else nil

	// The steps exist twice, so that an execution that reports nothing does not look at the listener in each step.
	observed step // the entry to the steps that report; only with a listener
	quiet    step // the entry to the steps that report only what is out of the ordinary, to the other listeners if any

	closedBy error // only in modeClosed: a reason that closedError adds to ErrClosed, or nil
	// previous, only in modeClosed, is the version that Retire replaced, for the executions that runPrevious describes.
	previous *atomic.Pointer[version]
}

// A mode is what executions do on a version:
//
//	mode             counted by tracker   runs strategies and reports   what it is
//	modeClosed       no                   no: returns ErrClosed         closed, or a Reloadable without a version
//	modeBare         no                   no: just the callback         no strategies and no listener
//	modePlain        no                   yes                           any other pipeline
//	modeCountedBare  yes                  no: just the callback         modeBare, in a Reloadable
//	modeCounted      yes                  yes                           modePlain, in a Reloadable
//
// So tracker is nil in the first three. Every mode checks the context before the callback runs.
type mode uint8

const (
	modeClosed mode = iota
	modeBare
	modePlain
	modeCountedBare
	modeCounted
)

// modeOf returns the mode of a version that is open.
func modeOf(bare, counted bool) mode {
	switch {
	case bare && counted:
		return modeCountedBare
	case bare:
		return modeBare
	case counted:
		return modeCounted
	default:
		return modePlain
	}
}

var zeroVersion = &version{mode: modeBare}

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

// Execute runs fn through the pipeline and returns the resulting error. A value that a strategy returns is dropped; see
// [ExecuteValue].
//
// The error is fn's own unless a strategy replaced it, [ContextError] if ctx was done before fn could run, or
// [ErrClosed].
func (p *Pipeline) Execute(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errNilCallback(p)
	}
	v := p.load()
	switch v.mode {
	case modeBare:
		if ctx.Err() != nil {
			return ContextError(ctx)
		}
		return fn(ctx)
	case modePlain: // as version.run does it, but inlined, because nearly all executions have this mode
		if v.isObserved(ctx) {
			_, err := v.runObserved(ctx, action(fn))
			return err
		}
		if ctx.Err() != nil {
			return ContextError(ctx)
		}
		first := v.quiet.next
		if first == nil {
			return fn(ctx)
		}
		_, err := first.strategy.Execute(ctx, Next{step: first, callback: action(fn)})
		return err
	case modeCountedBare:
		return executeCountedBare(ctx, p, v, fn)
	default:
		_, err := p.run(ctx, v, action(fn))
		return err
	}
}

// run runs c on v, which load returned before.
func (p *Pipeline) run(ctx context.Context, v *version, c callback) (any, error) {
	if v.tracker != nil {
		return p.runCounted(ctx, v, c)
	}
	return v.run(ctx, c)
}

// run runs c on v, whatever its mode, and does not count the execution.
func (v *version) run(ctx context.Context, c callback) (any, error) {
	if v.mode == modeClosed {
		return v.runPrevious(ctx, c)
	}
	if v.isObserved(ctx) {
		return v.runObserved(ctx, c)
	}
	return v.quiet.runFollowing(ctx, c)
}

// isObserved reports whether the listener wants the events of an execution.
func (v *version) isObserved(ctx context.Context) bool {
	return v.listener != nil && (v.enabler == nil || v.enabler.Enabled(ctx))
}

// runFollowing runs what follows the entry s, unless ctx is done already.
func (s *step) runFollowing(ctx context.Context, c callback) (any, error) {
	first := s.next
	if first == nil {
		return Next{step: s, callback: c}.Run(ctx) // Run checks the context before the callback
	}
	if ctx.Err() != nil {
		return nil, ContextError(ctx)
	}
	return first.strategy.Execute(ctx, Next{step: first, callback: c})
}

// runObserved runs c and reports the beginning and the end. It is a function of its own so that executions without
// events do not pay for the clock and the defer.
func (v *version) runObserved(ctx context.Context, c callback) (value any, err error) {
	e := Event{Name: EventPipelineExecuting, Severity: SeverityDebug, Source: v.source, Operation: Operation(ctx)}
	v.listener.OnEvent(ctx, e)
	began := clock.Now()
	err = ErrAborted // stays if the callback panics or calls Goexit
	defer func() {
		e.Name, e.Severity = EventPipelineExecuted, SeverityInformation
		e.Result, e.Err, e.Duration = value, err, clock.Now()-began
		v.listener.OnEvent(ctx, e)
	}()
	value, err = v.observed.runFollowing(ctx, c)
	return value, err
}

// Name returns [Config.Name].
func (p *Pipeline) Name() string { return p.load().source.Pipeline }

// Instance returns [Config.Instance].
func (p *Pipeline) Instance() string { return p.load().source.Instance }

// Closed reports whether executions that begin now return [ErrClosed]: the pipeline was closed, or the
// registry or [Reloadable] that it belongs to has no version of it.
func (p *Pipeline) Closed() bool { return p.load().mode == modeClosed }

// Strategies yields the strategies, the outermost first, each with the [Source] under which it reports. An embedded
// pipeline, see [Embed], is one strategy, and has a method Pipeline() *Pipeline.
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

// sourceOf returns the Source of the i-th strategy.
func (v *version) sourceOf(i int) Source {
	s := v.source
	s.Strategy = strategyName(v.strategies[i])
	return s
}

// Close closes the strategies that have a Close method, in order, and returns their errors joined. Executions that
// begin later return [ErrClosed]. Close does not wait for running executions. If a running execution comes back to a
// closed strategy, as a retry does with its next attempt, it gets that strategy's error.
//
// A second call of Close does nothing and returns the same error. If it comes while the first call runs, for example
// from a strategy's Close method, the second call returns nil at once. A strategy closes only what it made itself,
// never a limiter or a pipeline that was passed to it. A pipeline of a registry or a [Reloadable] cannot be closed:
// Close returns an error.
func (p *Pipeline) Close() error {
	if p == nil {
		return nil
	}
	if p.reloadable {
		return errors.New(p.prefix() + "it belongs to a registry or a Reloadable, and only that can close it")
	}
	return p.closing.do(p.close)
}

func (p *Pipeline) close() error {
	open := p.load()
	closed := *open
	closed.mode = modeClosed
	p.current.Store(&closed)

	return open.closeStrategies()
}

// closedError returns the [ErrClosed] of an execution on a closed version.
func (v *version) closedError() error {
	err := ErrClosed
	if name := v.source.Pipeline; name != "" {
		err = fmt.Errorf("%w: %s", err, name)
	}
	if v.closedBy != nil {
		err = fmt.Errorf("%w: %w", err, v.closedBy)
	}
	return err
}

// closeStrategies closes the strategies in order.
func (v *version) closeStrategies() error {
	var errs []error
	recovered.CloseAll(v.strategies, func(i int, err error) {
		errs = append(errs, fmt.Errorf("pipeline: closing %v: %w", v.sourceOf(i), err))
	})
	return errors.Join(errs...)
}

// onceWithError runs a function once and keeps its error. Unlike [sync.OnceValue] it lets the function call itself:
// while the function runs, other calls return nil at once.
type onceWithError struct {
	begun atomic.Bool
	err   atomic.Pointer[error]
}

func (o *onceWithError) do(f func() error) (err error) {
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
