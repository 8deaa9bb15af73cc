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

// defaultTimeout is the limit of a strategy that was made with 0.
const defaultTimeout = 30 * time.Second

// EventTimeout is the event of an execution that was timed out. Err is the [*Error]. Its severity is Error.
const EventTimeout = "OnTimeout"

// Options are the options of a timeout, except its length. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Timeout".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Func returns the limit of an execution. If it is 0 or less, the execution has none. If Func is nil,
	// every execution has the limit that the strategy was made with.
	Func func(ctx context.Context) time.Duration `json:"-" yaml:"-"`
	// OnTimeout, if it is not nil, is called with the caller's context and the event, before the [*Error] is returned.
	OnTimeout func(ctx context.Context, e pipeline.Event) `json:"-" yaml:"-"`
}

// A Strategy is a timeout. Make one with [New]. It is safe for concurrent use.
type Strategy struct {
	after   time.Duration
	options Options
	cause   atomic.Pointer[Error] // of the last execution, because the next one usually has the same
}

// New makes a timeout of d; 0 is 30 s. If d is below 0, making a pipeline of the strategy fails. If o is nil,
// the defaults apply. With [Options.Func] d is not used, but must still be valid.
func New(d time.Duration, o *Options) *Strategy {
	s := &Strategy{after: cmp.Or(d, defaultTimeout), options: *cmp.Or(o, new(Options))}
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
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= after {
		return next.Run(ctx) // the caller's deadline comes first, and is not a timeout of this strategy
	}
	cause := s.causeOf(after, next.Source())
	end := saturate.Add(clock.Now(), after)
	limited := deadline.New(ctx, cause, end)
	defer limited.Finish()
	value, err := next.Run(limited)
	if err == nil || clock.Now() < end || ctx.Err() != nil {
		return value, err
	}
	failure := &Error{After: after, Source: cause.Source, Err: err}
	next.Announce(ctx, pipeline.Event{Name: EventTimeout, Severity: pipeline.SeverityError, Err: failure}, s.options.OnTimeout)
	return value, failure
}

// causeOf returns the [context.Cause] of executions with that limit and Source. It keeps the last one, so that it seldom
// allocates.
func (s *Strategy) causeOf(after time.Duration, source pipeline.Source) *Error {
	if last := s.cause.Load(); last != nil && last.After == after && last.Source == source {
		return last
	}
	cause := &Error{After: after, Source: source}
	s.cause.Store(cause)
	return cause
}
