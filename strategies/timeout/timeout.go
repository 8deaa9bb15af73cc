package timeout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// DefaultTimeout is the limit of a strategy that was made with 0.
const DefaultTimeout = 30 * time.Second

// EventOnTimeout is the event of an execution that was timed out. Error; its Err
// is the [*Error].
const EventOnTimeout = "OnTimeout"

// Options are what can be said about a timeout besides its length. The zero
// Options are the defaults.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "Timeout".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Func, where set, gives the limit of each execution; zero or less: none.
	Func func(ctx context.Context) time.Duration `json:"-" yaml:"-"`
	// OnTimeout is called with the caller's context and the limit, after the
	// event and before the error is returned.
	OnTimeout func(ctx context.Context, d time.Duration) `json:"-" yaml:"-"`
}

// A Strategy is a timeout. It is safe for concurrent use.
type Strategy struct {
	after   time.Duration
	options Options
}

// New makes a timeout of d; 0 is 30 s. A nil o means the defaults. With
// [Options.Func] d does not matter, but must be valid.
func New(d time.Duration, o *Options) *Strategy {
	s := &Strategy{after: d}
	if o != nil {
		s.options = *o
	}
	if s.after == 0 {
		s.after = DefaultTimeout
	}
	if s.options.Name == "" {
		s.options.Name = "Timeout"
	}
	return s
}

// Name returns [Options.Name], or "Timeout".
func (s *Strategy) Name() string { return s.options.Name }

// Timeout returns the limit that the strategy was made with.
func (s *Strategy) Timeout() time.Duration { return s.after }

// Options returns the options, with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error {
	if s.after < 0 {
		return fmt.Errorf("timeout: the timeout is %v, must be more than 0, or 0 for %v", s.after, DefaultTimeout)
	}
	return nil
}

// Execute runs next with a context that ends in time. It implements
// [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	after := s.after
	if s.options.Func != nil {
		if after = s.options.Func(ctx); after <= 0 {
			return next.Run(ctx)
		}
	}
	deadline := time.Now().Add(after)
	if callers, ok := ctx.Deadline(); ok && !callers.After(deadline) {
		return next.Run(ctx) // it ends before ours would: not a timeout of ours
	}
	limited := newLimited(ctx, deadline, Error{After: after, Source: next.Source()})
	defer limited.finish()

	value, err := next.Run(limited)
	if err == nil || !limited.brought(err) {
		return value, err
	}
	return nil, s.timedOut(ctx, next, after, err)
}

// brought tells whether err came about because our deadline passed: it has, the
// caller's own context is not done, and err is of the kind that an ended context
// causes.
func (c *limited) brought(err error) bool {
	if c.parent.Err() != nil || time.Until(c.deadline) > 0 {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, os.ErrDeadlineExceeded) || // a connection that was given our Deadline
		errors.Is(err, &c.cause)
}

func (s *Strategy) timedOut(ctx context.Context, next pipeline.Next, after time.Duration, err error) error {
	failure := &Error{After: after, Source: next.Source(), Err: err}
	next.Report(ctx, pipeline.Event{Name: EventOnTimeout, Severity: pipeline.Error, Err: failure})
	if s.options.OnTimeout != nil {
		s.options.OnTimeout(ctx, after)
	}
	return failure
}

// Error is the error of an execution that was timed out. It [errors.Is]
// [pipeline.ErrRejected], and is not [context.DeadlineExceeded]: that is the
// caller's own deadline, and this one a retry may do something about.
type Error struct {
	// After is the limit that was exceeded.
	After time.Duration
	// Source is the strategy that set it.
	Source pipeline.Source
	// Err is what the callback returned when its context had ended; nil in a
	// [context.Cause]. It is not unwrapped, it would be a DeadlineExceeded.
	Err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("timeout: %v: no result within %v", e.Source, e.After)
}

// Is tells whether target is [pipeline.ErrRejected].
func (e *Error) Is(target error) bool { return target == pipeline.ErrRejected }

// Timeout returns true, as a [net.Error] would.
func (e *Error) Timeout() bool { return true }
