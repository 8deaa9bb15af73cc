package pipeline

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/untimed"
)

// A Strategy wraps what comes after it in a pipeline. It decides whether, when
// and how often next runs, and may replace what comes out. It must be safe for
// concurrent use.
//
// A Strategy may have more methods:
//
//   - Name() string: how it is called in telemetry;
//   - Validate() error: what is wrong with its options, asked once when a
//     pipeline is made;
//   - Close() error: called by [Pipeline.Close], for what the strategy itself owns.
type Strategy interface {
	Execute(ctx context.Context, next Next) (any, error)
}

// A StrategyFunc is a [Strategy] that is just a function.
type StrategyFunc func(ctx context.Context, next Next) (any, error)

// Execute calls f.
func (f StrategyFunc) Execute(ctx context.Context, next Next) (any, error) { return f(ctx, next) }

// strategyName returns what s is called, "" if it does not say.
func strategyName(s Strategy) string {
	if named, ok := s.(interface{ Name() string }); ok {
		return named.Name()
	}
	return ""
}

// Next is the rest of the pipeline as one strategy sees it. It is a value:
// copying it costs nothing, and it may be kept, run many times, and run by many
// goroutines at once; each run has its own result.
//
// The zero Next is of no use: Run returns an error, and reports go nowhere.
type Next struct {
	step     *step // the strategy that this Next was given to
	callback callback
}

// A step is the place of one strategy in one version of a pipeline.
type step struct {
	strategy Strategy // nil in the entry, which stands before the first
	next     *step    // nil: the callback comes next
	listener Listener
	measurer Measurer      // the listener, if it is one
	leases   LeaseMeasurer // the measurer, if it is one
	atOnce   bool          // no time goes by while the measurer is told something
	source   Source
	tracker  *tracker // of the version; nil: nobody counts
	instant  bool     // strategy takes a [deadline.Early]
}

// Run runs what comes after this strategy and returns its result. The callback
// does not run if ctx is done by then: the error is [ContextError].
func (n Next) Run(ctx context.Context) (any, error) {
	if n.step == nil {
		return nil, errZeroNext
	}
	following := n.step.next
	if following != nil {
		if !following.instant {
			ctx = deadline.Full(ctx)
		}
		return following.strategy.Execute(ctx, Next{step: following, callback: n.callback})
	}
	// Only before the callback: asking a context can cost a reading of the clock.
	if ctx.Err() != nil {
		return nil, ContextError(deadline.Full(ctx))
	}
	return n.callback.run(deadline.Full(ctx))
}

var errZeroNext = errors.New("pipeline: Run of a zero Next")

// Source says which strategy in which pipeline this is.
func (n Next) Source() Source {
	if n.step == nil {
		return Source{}
	}
	return n.step.source
}

// Listening tells whether a report would reach anybody. A strategy asks before
// it does work, such as reading the clock, that only serves a report.
func (n Next) Listening() bool { return n.step != nil && n.step.listener != nil }

// Report sends e to the pipeline's Listener, with Source and Operation filled
// in. It costs nothing when there is none. An event of severity [SeverityNone] is dropped.
func (n Next) Report(ctx context.Context, e Event) {
	if n.Listening() {
		n.step.report(ctx, &e)
	}
}

// Measuring tells whether a measurement would reach anybody, see [Measurer].
func (n Next) Measuring() bool { return n.step != nil && n.step.measurer != nil }

// Measure sends e to the pipeline's Listener if it is a [Measurer], with Source
// filled in and with severity [SeverityNone]. What is measured often is not worth looking
// up the operation key for.
func (n Next) Measure(ctx context.Context, e Event) {
	if !n.Measuring() {
		return
	}
	e.Severity = SeverityNone
	e.Source = n.step.source
	n.step.measurer.OnMeasurement(ctx, e)
}

// MeasureBegin is Measure for the beginning of what [Next.MeasureEnd] ends, see
// [LeaseMeasurer]. It returns what is to be handed to MeasureEnd.
func (n Next) MeasureBegin(ctx context.Context, e Event) (begun any) {
	if n.step == nil || n.step.leases == nil {
		n.Measure(ctx, e)
		return nil
	}
	e.Severity = SeverityNone
	e.Source = n.step.source
	begun = n.step.leases.BeginMeasurement(ctx, e)
	if !n.step.atOnce && untimed.Is(begun) {
		return handedOn{begun}
	}
	return begun
}

// handedOn hides that begun is untimed: a measurer of the program has it from another one, and may want to know
// the time itself.
type handedOn struct{ begun any }

// MeasureEnd is Measure for the end of what [Next.MeasureBegin] has begun.
func (n Next) MeasureEnd(ctx context.Context, e Event, begun any) {
	if n.step == nil || n.step.leases == nil {
		n.Measure(ctx, e)
		return
	}
	if h, ok := begun.(handedOn); ok {
		begun = h.begun
	}
	e.Severity = SeverityNone
	e.Source = n.step.source
	n.step.leases.EndMeasurement(ctx, e, begun)
}

// report fills in what e lacks, which is the caller's own copy, and tells the listener.
func (s *step) report(ctx context.Context, e *Event) {
	if e.Severity == SeverityNone {
		return
	}
	e.Source = s.source
	e.Operation = Operation(ctx)
	s.listener.OnEvent(ctx, *e)
}
