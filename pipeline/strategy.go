package pipeline

import (
	"context"
	"errors"

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
	listener          Listener
	attempts          Listener      // the part of the listener that gets EventExecutionAttempt; nil if there is none
	measurer          Measurer      // the listener if it is a Measurer, else nil
	leases            LeaseMeasurer // the measurer if it is a LeaseMeasurer, else nil
	measuresInstantly bool          // isInstant(measurer); also true without a measurer

	// takesEarly: the strategy can get the cheaper [deadline.Early] form of a context of the timeout strategy.
	takesEarly bool
}

// Run runs what comes after this strategy and returns its result. If the callback comes next and ctx is done, the
// callback does not run, and the error is [ContextError].
func (n Next) Run(ctx context.Context) (any, error) {
	if n.step == nil {
		return nil, errZeroNext
	}
	following := n.step.next
	if following != nil {
		if !following.takesEarly {
			ctx = deadline.Full(ctx)
		}
		return following.strategy.Execute(ctx, Next{step: following, callback: n.callback})
	}
	// The context is checked only before the callback, because its Err can read the clock.
	if ctx.Err() != nil {
		return nil, ContextError(deadline.Full(ctx))
	}
	return n.callback.run(deadline.Full(ctx))
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
func (n Next) Listening() bool { return n.step != nil && n.step.listener != nil }

// ListeningToAttempts reports whether there is a Listener that wants every [EventExecutionAttempt] of this execution. A
// strategy calls it before work that only serves this event, such as reading the clock.
func (n Next) ListeningToAttempts() bool { return n.step != nil && n.step.attempts != nil }

// Report sets Source and Operation of e and sends it to the pipeline's Listener, if there is one. An event of severity
// [SeverityNone] is dropped. Operation is not set if every Listener wants only what is out of the ordinary.
func (n Next) Report(ctx context.Context, e Event) {
	if n.Listening() {
		n.step.report(ctx, &e)
	}
}

// report sets Source and Operation of e and hands it to the listener.
func (s *step) report(ctx context.Context, e *Event) {
	if e.Severity == SeverityNone {
		return
	}
	to := s.listener
	if e.Name == EventExecutionAttempt {
		if to = s.attempts; to == nil {
			return
		}
	}
	e.Source = s.source
	if s.attempts != nil { // else only listeners that look it up themselves, where they need it
		e.Operation = Operation(ctx)
	}
	to.OnEvent(ctx, *e)
}
