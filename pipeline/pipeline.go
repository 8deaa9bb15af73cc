package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/recovered"
)

// A Pipeline runs callbacks through its strategies. Make one with [New] or [Config.Build]. The zero Pipeline and a nil
// *Pipeline run the callback and nothing else. It is safe for concurrent use, and must not be copied.
type Pipeline struct {
	// current is what executions run on. Each execution loads it once, so that a Reloadable can replace it while they
	// run. It is nil in a zero Pipeline.
	current atomic.Pointer[version]

	reloadable bool // it belongs to a Reloadable
}

// A version is what one Config was compiled to. It never changes.
type version struct {
	source     Source // the name and instance of the pipeline, without a strategy
	strategies []Strategy
	tracker    *tracker // counts the executions of a Reloadable's version, else nil
	closed     bool     // executions get the error of a closed

	// The steps exist twice, so that an execution that reports nothing does not look at the listener in each step.
	observed *step                          // the entry to the steps that report; nil if no listener wants the events of every execution
	quiet    step                           // the entry to the steps that report only to listeners that are Rare
	enabled  func(ctx context.Context) bool // whether a listener wants the events of an execution; nil if always

	// simple: an execution is neither counted nor reported.
	simple bool
}

var zeroVersion = Config{}.compile(nil)

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

// isBare reports whether executions just run the callback.
func (v *version) isBare() bool { return v.simple && v.quiet.next == nil }

// Execute runs fn through the pipeline and returns the resulting error. A value that a strategy returns is dropped; see
// [ExecuteValue].
//
// The error is fn's own unless a strategy replaced it, [ContextError] and [NotCalled] if ctx was done before fn could run, or
// [ErrClosed].
func (p *Pipeline) Execute(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errNilCallback(p)
	}
	v := p.load()
	if !v.simple {
		_, err := p.run(ctx, v, action(fn))
		return err
	}
	// As runFollowing does it, but inlined, because nearly all executions come here.
	if ctx.Err() != nil {
		return ctxerr.NotBegun(ctx)
	}
	first := v.quiet.next
	if first == nil {
		return fn(ctx)
	}
	_, err := first.strategy.Execute(ctx, Next{step: first, callback: action(fn)})
	return err
}

// run runs c on the current version, which v was when load returned it.
func (p *Pipeline) run(ctx context.Context, v *version, c callback) (any, error) {
	if v.tracker == nil {
		return v.run(ctx, c)
	}
	v, counted := p.enterCurrent(v)
	if counted != nil {
		defer v.tracker.leave(counted)
	}
	return v.run(ctx, c)
}

// enterCurrent counts an execution on the current version, which is v unless it was replaced, and returns the version
// and the shard to leave. The shard is nil if the version does not count.
func (p *Pipeline) enterCurrent(v *version) (*version, *shard) {
	for v.tracker != nil {
		counted := v.tracker.enter()
		now := p.current.Load()
		if now == v {
			return v, counted
		}
		v.tracker.leave(counted) // v was replaced before the execution was counted
		v = now
	}
	return v, nil
}

// run runs c on v, and does not count the execution.
func (v *version) run(ctx context.Context, c callback) (any, error) {
	if v.observed != nil && (v.enabled == nil || v.enabled(ctx)) {
		return v.runObserved(ctx, c)
	}
	return v.quiet.runFollowing(ctx, c)
}

// runFollowing runs what follows the entry s, unless ctx is done already.
func (s *step) runFollowing(ctx context.Context, c callback) (any, error) {
	if ctx.Err() != nil {
		return nil, ctxerr.NotBegun(ctx)
	}
	return Next{step: s, callback: c}.Run(ctx)
}

// runObserved runs c and reports the beginning and the end. It is a function of its own so that executions without
// events do not pay for the clock and the defer.
func (v *version) runObserved(ctx context.Context, c callback) (value any, err error) {
	e := Event{Name: EventPipelineExecuting, Severity: SeverityDebug, Source: v.source, Operation: Operation(ctx)}
	v.observed.ordinary(ctx, e)
	began := clock.Now()
	err = ErrAborted // stays if the callback panics or calls Goexit
	defer func() {
		e.Name, e.Severity = EventPipelineExecuted, SeverityInformation
		e.Result, e.Err, e.Duration = value, err, clock.Now()-began
		v.observed.ordinary(ctx, e)
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
func (p *Pipeline) Closed() bool { return p.load().closed }

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
// A second call of Close does nothing and returns nil. A strategy closes only what it made itself, never a limiter or a
// pipeline that was passed to it. A pipeline of a registry or a [Reloadable] cannot be closed: Close returns an error.
func (p *Pipeline) Close() error {
	switch {
	case p == nil:
		return nil
	case p.reloadable:
		return errors.New(p.prefix() + "it belongs to a registry or a Reloadable, and only that can close it")
	case p.Closed():
		return nil
	}
	current := p.current.Load()
	open := cmp.Or(current, zeroVersion)
	v := newClosed(open.source, nil, nil)
	v.strategies = open.strategies
	if !p.current.CompareAndSwap(current, v) {
		return nil // another call of Close was first
	}
	return open.closeStrategies()
}

// newClosed returns a version whose executions return an error that matches [ErrClosed] and also reason, unless reason is
// nil. See [closed] for retired.
func newClosed(s Source, reason error, retired *version) *version {
	err := ErrClosed
	if s.Pipeline != "" {
		err = fmt.Errorf("%w: %s", err, s.Pipeline)
	}
	if reason != nil {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	v := &version{source: s, closed: true, simple: true}
	v.quiet.next = &step{strategy: closed{err, retired}}
	return v
}

// closeStrategies closes the strategies in order.
func (v *version) closeStrategies() error {
	var errs []error
	recovered.CloseAll(v.strategies, func(i int, err error) {
		errs = append(errs, fmt.Errorf("pipeline: closing %v: %w", v.sourceOf(i), err))
	})
	return errors.Join(errs...)
}

// String returns the name and instance, as in "orders/eu-1", or "pipeline" if both are empty.
func (p *Pipeline) String() string { return cmp.Or(p.load().source.String(), "pipeline") }

// LogValue implements [slog.LogValuer]: a pipeline is logged as its String.
func (p *Pipeline) LogValue() slog.Value { return slog.StringValue(p.String()) }
