package timeout

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// DefaultTimeout is the limit of a strategy that was made with 0.
const DefaultTimeout = 30 * time.Second

// EventTimeout is the event of an execution that was timed out. Err is the [*Error]. Its severity is Error.
const EventTimeout = "OnTimeout"

// Options are the options of a timeout, except its length. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Timeout".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Func returns the limit of an execution. If it is 0 or less, the execution has none. If Func is nil,
	// every execution has the limit that the strategy was made with.
	Func func(ctx context.Context) time.Duration `json:"-" yaml:"-"`
	// OnTimeout, if it is not nil, is called with the caller's context and the limit, after the event and before the
	// error is returned.
	OnTimeout func(ctx context.Context, d time.Duration) `json:"-" yaml:"-"`
}

// A Strategy is a timeout. Make one with [New]. It is safe for concurrent use.
type Strategy struct {
	after     time.Duration
	options   Options
	predictor donePredictor
	last      atomic.Pointer[limit] // of the last execution, because the next one usually has the same
}

// New makes a timeout of d; 0 is 30 s. If d is below 0, making a pipeline of the strategy fails. If o is nil, it has the
// defaults. With [Options.Func] d is not used, but must still be valid.
func New(d time.Duration, o *Options) *Strategy {
	s := &Strategy{after: cmp.Or(d, DefaultTimeout), options: *cmp.Or(o, new(Options))}
	s.options.Name = cmp.Or(s.options.Name, "Timeout")
	return s
}

// Name returns [Options.Name], or "Timeout".
func (s *Strategy) Name() string { return s.options.Name }

// Timeout returns the limit that the strategy was made with.
func (s *Strategy) Timeout() time.Duration { return s.after }

// Options returns the options with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// A Description is what [Strategy.Describe] returns as the options.
type Description struct {
	Options
	// Timeout is the limit, unless Func returns one for each execution.
	Timeout time.Duration `json:"timeout"`
}

// Describe returns a [Description]. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	return Description{Options: s.options, Timeout: s.after}, nil
}

// Validate returns a [weir.OptionsError] if the limit is below 0, or the strategy was made without [New].
func (s *Strategy) Validate() error {
	var p validate.Problems
	p.Positive("Timeout", s.after)
	return p.Err("timeout")
}

// Execute runs next with a context that ends after the limit. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	after := s.after
	if s.options.Func != nil {
		if after = s.options.Func(ctx); after <= 0 {
			return next.Run(ctx)
		}
	}
	if s.predictor.predictsDone() {
		return s.runWithTimer(ctx, next, after)
	}
	return s.runWithoutTimer(ctx, next, after)
}

// runWithTimer runs next with a context of the standard library, for an execution that is expected to call Done.
func (s *Strategy) runWithTimer(ctx context.Context, next pipeline.Next, after time.Duration) (any, error) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= after {
		return next.Run(ctx) // the caller's deadline comes first, and is not a timeout of this strategy
	}
	cause := &s.limitOf(after, next.Source()).cause
	limited, cancel := context.WithTimeoutCause(ctx, after, cause)
	defer cancel()
	value, err := next.Run(limited)
	if err == nil {
		return value, nil
	}
	if end, _ := limited.Deadline(); time.Until(end) > 0 || !timedOut(ctx, cause, err) {
		return value, err
	}
	return nil, s.failed(ctx, next, cause, err)
}

// shortestEarly is the shortest limit with which an execution gets a [deadline.Early]. A shorter one can pass while the
// strategies further inside run, and an Early would not notice that.
const shortestEarly = time.Millisecond

// runWithoutTimer runs next with a [deadline.Context], for an execution that is not expected to call Done, and learns
// whether it did.
func (s *Strategy) runWithoutTimer(ctx context.Context, next pipeline.Next, after time.Duration) (any, error) {
	end := saturate.Add(clock.Now(), after)
	if deadline.EndsBy(ctx, end) {
		return next.Run(ctx) // as in runWithTimer
	}
	l := s.limitOf(after, next.Source())
	limited := deadline.New(ctx, &l.Limit, end)
	defer s.finish(limited)
	var inner context.Context = limited
	if after >= shortestEarly {
		inner = limited.Early()
	}
	value, err := next.Run(inner)
	if err == nil || clock.Now() < end || !timedOut(ctx, &l.cause, err) {
		return value, err
	}
	return nil, s.failed(ctx, next, &l.cause, err)
}

// finish ends c and learns whether Done was called.
func (s *Strategy) finish(c *deadline.Context) { s.predictor.learn(c.Finish()) }

// A limit is what executions with the same limit and Source have in common.
type limit struct {
	deadline.Limit
	cause Error // Limit.Cause points to it
}

// limitOf returns the limit of executions that have the time after and the Source source. It keeps the last limit, so
// that it seldom allocates.
func (s *Strategy) limitOf(after time.Duration, source pipeline.Source) *limit {
	if l := s.last.Load(); l != nil && l.cause.Source.Pipeline == source.Pipeline &&
		l.cause.Source.Instance == source.Instance && l.cause.Source.Strategy == source.Strategy && l.After == after {
		return l
	}
	l := &limit{cause: Error{After: after, Source: source}}
	l.Limit = deadline.Limit{After: after, Cause: &l.cause}
	s.last.Store(l)
	return l
}

// failed reports an execution that was timed out, and returns its error.
func (s *Strategy) failed(ctx context.Context, next pipeline.Next, cause *Error, err error) error {
	failure := &Error{After: cause.After, Source: cause.Source, Err: err}
	next.Report(ctx, pipeline.Event{Name: EventTimeout, Severity: pipeline.SeverityError, Err: failure})
	if s.options.OnTimeout != nil {
		s.options.OnTimeout(ctx, cause.After)
	}
	return failure
}
