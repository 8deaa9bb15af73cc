package timeout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// DefaultTimeout is the limit of a strategy that was made with 0.
const DefaultTimeout = 30 * time.Second

// EventTimeout is the event of an execution that was timed out. Error; its Err
// is the [*Error].
const EventTimeout = "OnTimeout"

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
	habit   habit
	limit   atomic.Pointer[limit] // of the last execution; nearly always the next one's, too
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

// A Description is what [Strategy.Describe] says about the options.
type Description struct {
	Options
	// Timeout is the limit, unless Func gives one for each execution.
	Timeout time.Duration `json:"timeout"`
}

// Describe says what the strategy is made of, as a [Description]. It is for
// [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	return Description{Options: s.options, Timeout: s.after}, nil
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error {
	if s.after <= 0 { // 0: made without New
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
	if s.habit.armed() {
		return s.runArmed(ctx, next, after)
	}
	return s.runLazily(ctx, next, after)
}

// runArmed is for callbacks that ask for Done.
func (s *Strategy) runArmed(ctx context.Context, next pipeline.Next, after time.Duration) (any, error) {
	if callers, ok := ctx.Deadline(); ok && time.Until(callers) <= after {
		return next.Run(ctx) // it ends before ours would: not a timeout of ours
	}
	cause := &s.limitOf(after, next.Source()).cause
	limited, cancel := context.WithTimeoutCause(ctx, after, cause)
	defer cancel()
	value, err := next.Run(limited)
	if err == nil {
		return value, nil
	}
	if ends, _ := limited.Deadline(); time.Until(ends) > 0 || !timedOut(ctx, cause, err) {
		return value, err
	}
	return nil, s.failed(ctx, next, cause, err)
}

// leastEarly is the shortest limit that does not pass while the pipeline is on its way to the callback.
const leastEarly = time.Millisecond

// runLazily is for callbacks that do not, and finds out which it is.
func (s *Strategy) runLazily(ctx context.Context, next pipeline.Next, after time.Duration) (any, error) {
	ends := saturate.Add(clock.Now(), after)
	if deadline.EndsBy(ctx, ends) {
		return next.Run(ctx) // as in runArmed
	}
	l := s.limitOf(after, next.Source())
	limited := deadline.New(ctx, &l.Limit, ends)
	defer s.finish(limited)
	var inner context.Context = limited
	if after >= leastEarly {
		inner = limited.Early()
	}
	value, err := next.Run(inner)
	if err == nil || clock.Now() < ends || !timedOut(ctx, &l.cause, err) {
		return value, err
	}
	return nil, s.failed(ctx, next, &l.cause, err)
}

func (s *Strategy) finish(c *deadline.Context) { s.habit.learn(c.Finish()) }

// A limit is what the executions of a strategy have in common.
type limit struct {
	deadline.Limit
	cause Error // Limit.Cause
}

// limitOf is the limit of an execution. It is the same for nearly every execution of a strategy.
func (s *Strategy) limitOf(after time.Duration, source pipeline.Source) *limit {
	if l := s.limit.Load(); l != nil && l.cause.Source.Pipeline == source.Pipeline &&
		l.cause.Source.Instance == source.Instance && l.cause.Source.Strategy == source.Strategy && l.After == after {
		return l
	}
	l := &limit{cause: Error{After: after, Source: source}}
	l.Limit = deadline.Limit{After: after, Cause: &l.cause}
	s.limit.Store(l)
	return l
}

// timedOut reports whether err came about because our deadline has passed: the
// caller's own context is not done, and err is of the kind that an ended context
// causes.
func timedOut(ctx context.Context, cause *Error, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, os.ErrDeadlineExceeded) || // a connection that was given our Deadline
		errors.Is(err, cause) ||
		saysTimeout(err)
}

// saysTimeout reports whether an error that does not match the context's says by a method that it is a
// timeout: Timeout() bool, as a net.Error does, or GRPCStatus with the code Canceled or DeadlineExceeded. A
// gRPC client returns such a status, which has only the text of the context's error.
//
// A rejection is never one: the time of another timeout was up, further inside.
func saysTimeout(err error) bool {
	if errors.Is(err, pipeline.ErrRejected) {
		return false
	}
	if late, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && late.Timeout() {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if code, ok := grpcCode(err); ok {
			return code == 1 || code == 4 // codes.Canceled, codes.DeadlineExceeded
		}
	}
	return false
}

// grpcCode returns the code of an error with a method GRPCStatus. It is found by reflection, because its
// result is a type of a module that this one does not import.
func grpcCode(err error) (code uint64, ok bool) {
	m := reflect.ValueOf(err).MethodByName("GRPCStatus")
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
		return 0, false
	}
	status := m.Call(nil)[0]
	if k := status.Kind(); (k == reflect.Pointer || k == reflect.Interface) && status.IsNil() {
		return 0, false
	}
	c := status.MethodByName("Code")
	if !c.IsValid() || c.Type().NumIn() != 0 || c.Type().NumOut() != 1 || c.Type().Out(0).Kind() != reflect.Uint32 {
		return 0, false
	}
	return c.Call(nil)[0].Uint(), true
}

func (s *Strategy) failed(ctx context.Context, next pipeline.Next, cause *Error, err error) error {
	failure := &Error{After: cause.After, Source: cause.Source, Err: err}
	next.Report(ctx, pipeline.Event{Name: EventTimeout, Severity: pipeline.SeverityError, Err: failure})
	if s.options.OnTimeout != nil {
		s.options.OnTimeout(ctx, cause.After)
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
	if e.Source == (pipeline.Source{}) {
		return fmt.Sprintf("timeout: no result within %v", e.After)
	}
	return fmt.Sprintf("timeout: %v: no result within %v", e.Source, e.After)
}

// Is tells whether target is [pipeline.ErrRejected].
func (e *Error) Is(target error) bool { return target == pipeline.ErrRejected }

// RetryDelay is what the callback's own error asks for. See [pipeline.RetryAfter].
func (e *Error) RetryDelay() (d time.Duration, ok bool) { return pipeline.RetryAfter(e.Err) }

// NotCalled reports whether the execution ended before anything was called: it waited in the queue of a
// limiter further inside. A circuit breaker around the timeout does not count it then.
func (e *Error) NotCalled() bool { return e != nil && judge.NotCalled(e.Err) }

// Timeout returns true, as a [net.Error] would.
func (e *Error) Timeout() bool { return true }
