package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deadline"
)

// A Strategy wraps what comes after it in a pipeline. It decides whether, when and how often next runs, and can replace
// the outcome. It must be safe for concurrent use.
//
// A Strategy can have more methods:
//
//   - Name() string returns its name in telemetry.
//   - Validate() error returns what is wrong with its options. It is called when a pipeline is made.
//   - Close() error is called by [Pipeline.Close]. It releases what the strategy itself owns.
type Strategy interface {
	Execute(ctx context.Context, next Next) (any, error)
}

// A StrategyFunc is a function that is a [Strategy].
type StrategyFunc func(ctx context.Context, next Next) (any, error)

// Execute calls f.
func (f StrategyFunc) Execute(ctx context.Context, next Next) (any, error) { return f(ctx, next) }

// strategyName returns the name of s, or "" if it has none.
func strategyName(s Strategy) string {
	if named, ok := s.(interface{ Name() string }); ok {
		return named.Name()
	}
	return ""
}

// A Next is what comes after one strategy in a pipeline. It is a value: it can be copied, kept, run many times, and run
// by many goroutines at once. Each run has its own result.
//
// Run of the zero Next returns an error, and its reports are dropped.
type Next struct {
	step     *step // the strategy that this Next was given to
	callback callback
}

// A step is the place of one strategy in one version of a pipeline.
type step struct {
	strategy Strategy // nil in the entry, which is before the first strategy
	next     *step    // nil if the callback comes next
	source   Source
	tracker  *tracker // of the version; nil if executions are not counted

	// In the steps that report:
	onEvent  func(ctx context.Context, e Event)
	ordinary func(ctx context.Context, e Event) // gets the events that listeners which are Rare do not want
	measure  func(ctx context.Context, e Event) (ended func(ctx context.Context, e Event))
}

// Run runs what comes after this strategy and returns its result. If the callback comes next and ctx is done, the
// callback does not run, and the error is [ContextError] and [NotCalled].
func (n Next) Run(ctx context.Context) (any, error) {
	if n.step == nil {
		return nil, errZeroNext
	}
	if following := n.step.next; following != nil {
		return following.strategy.Execute(ctx, Next{step: following, callback: n.callback})
	}
	if deadline.Err(ctx) != nil {
		return nil, ctxerr.NotBegun(ctx)
	}
	return n.callback.run(ctx)
}

// RunTimed is Run for one attempt of a strategy that can make several. It also returns how long the attempt took, for
// [Next.ReportAttempt]; 0 if no Listener wants to know.
func (n Next) RunTimed(ctx context.Context) (result any, took time.Duration, err error) {
	if !n.ListeningToAttempts() {
		result, err = n.Run(ctx)
		return result, 0, err
	}
	began := clock.Now()
	result, err = n.Run(ctx)
	return result, clock.Now() - began, err
}

var errZeroNext = errors.New("pipeline: Run of a zero Next")

// Source returns which strategy of which pipeline this Next was given to.
func (n Next) Source() Source {
	if n.step == nil {
		return Source{}
	}
	return n.step.source
}

// Listening reports whether there is a Listener that wants the events of this execution. A strategy calls it before
// work that only serves a report.
func (n Next) Listening() bool { return n.step != nil && n.step.onEvent != nil }

// ListeningToAttempts reports whether there is a Listener that wants every [EventExecutionAttempt] of this execution. A
// strategy calls it before work that only serves this event, such as reading the clock.
func (n Next) ListeningToAttempts() bool { return n.step != nil && n.step.ordinary != nil }

// Report sets Source and Operation of e and sends it to the pipeline's Listener, if there is one. An attempt is reported by
// [Next.ReportAttempt]. An event of severity
// [SeverityNone] is dropped. Operation is not set if every Listener wants only what is out of the ordinary.
func (n Next) Report(ctx context.Context, e Event) {
	if !n.Listening() || e.Severity == SeverityNone {
		return
	}
	e.Source = n.step.source
	if n.step.ordinary != nil { // else only listeners that look it up themselves, where they need it
		e.Operation = Operation(ctx)
	}
	n.step.onEvent(ctx, e)
}

// ReportAttempt reports e, which has the outcome of an attempt, as an [EventExecutionAttempt]. An attempt of a severity
// above Information was handled.
func (n Next) ReportAttempt(ctx context.Context, e Event) {
	if n.ListeningToAttempts() {
		e.Name, e.Handled = EventExecutionAttempt, e.Severity > SeverityInformation
		e.Source, e.Operation = n.step.source, Operation(ctx)
		n.step.ordinary(ctx, e)
	}
}

// Announce reports e, and then calls hook with e and its Source, unless hook is nil. It is for events that the options of a
// strategy have a function for.
func (n Next) Announce(ctx context.Context, e Event, hook func(ctx context.Context, e Event)) {
	n.Report(ctx, e)
	if hook != nil {
		e.Source = n.Source()
		hook(ctx, e)
	}
}

// Measuring reports whether the pipeline's Listener takes measurements.
func (n Next) Measuring() bool { return n.step != nil && n.step.measure != nil }

// Measure sends e to [Hooks.OnMeasurement] of the pipeline's Listener, and returns what that returns: a function for the
// measurement of the end, or nil. It sets Source, and Severity to [SeverityNone]. It does not set Operation, because the
// look-up in the context would cost too much in every execution.
func (n Next) Measure(ctx context.Context, e Event) (ended func(ctx context.Context, e Event)) {
	if !n.Measuring() {
		return nil
	}
	e.Severity, e.Source = SeverityNone, n.step.source
	return n.step.measure(ctx, e)
}
