package adaptive

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Options are what can be said about the strategy besides its limiter. The zero
// Options are the defaults.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "AdaptiveLimiter".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Permits is what an execution weighs; nil is 1 for each. With 0 nothing is
	// learned from it.
	Permits func(ctx context.Context) int `json:"-" yaml:"-"`
	// Handle reports whether an outcome is a failure. If nil, every error is a failure
	// except the error of an execution that was cancelled. Any other outcome is a
	// success, but is ignored if the execution's context has ended. A rejection by a
	// strategy further inside, such as a rate limiter's, is also ignored, unless
	// Handle says that it is a failure.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// OnRejected is called for every rejection, after the event and before the
	// error is returned. If it returns an error, that one is returned instead.
	OnRejected func(ctx context.Context, r ratelimit.Rejection) error `json:"-" yaml:"-"`
}

// A Strategy asks a limiter before an execution goes on, and tells it what came
// of it. Make one with [New]. It is safe for concurrent use.
type Strategy struct {
	options Options
	limiter limiter.Limiter
	owned   *Limiter // nil: the limiter was passed in
	problem error    // what Validate returns
}

// New wraps l: a [Limiter], a [Throttler], or what they are part of, such as a
// chain of both. With a nil l the strategy makes and owns a [Limiter] with the
// zero [LimiterOptions]. A nil o means the defaults. An l that was passed in is
// never closed by the strategy.
//
// A limiter that has nothing of this package is used as the strategy of package
// ratelimit would.
func New(l limiter.Limiter, o *Options) *Strategy {
	s := &Strategy{limiter: l}
	if o != nil {
		s.options = *o
	}
	setDefault(&s.options.Name, "AdaptiveLimiter")
	if l == nil {
		s.owned, s.problem = NewLimiter(LimiterOptions{})
		s.limiter = s.owned
	} else if v := reflect.ValueOf(l); v.Kind() == reflect.Pointer && v.IsNil() {
		s.problem = errNilLimiter
	}
	return s
}

var errNilLimiter = errors.New("adaptive: the limiter is nil")

// Name returns [Options.Name], or "AdaptiveLimiter".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options, with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Limiter returns the limiter that the strategy asks.
func (s *Strategy) Limiter() limiter.Limiter { return s.limiter }

// Validate returns what is wrong with what the strategy was made of, or nil.
func (s *Strategy) Validate() error {
	if s.limiter == nil { // made without New
		return errNilLimiter
	}
	return s.problem
}

// Close closes the limiter if the strategy made it, and does nothing if not.
func (s *Strategy) Close() error {
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}

// Execute asks the limiter, runs next, and tells the limiter what came of it. A
// panic is a failure. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if next.Measuring() {
		return s.measured(ctx, next)
	}
	lease, err := s.acquire(ctx)
	if err != nil || !lease.Acquired() {
		return s.notGranted(ctx, next, lease, err)
	}
	return s.run(ctx, next, lease)
}

// measured is Execute where somebody measures. What it measures is what the
// strategy of package ratelimit does, under the same names.
func (s *Strategy) measured(ctx context.Context, next pipeline.Next) (any, error) {
	asked := clock.Now()
	lease, err := s.acquire(ctx)
	answered := clock.Now()
	answer := pipeline.Event{Name: ratelimit.MeasureRequest, Duration: answered - asked, Err: err}
	if err == nil && !lease.Acquired() {
		answer.Err = rejection(next, lease)
	}
	if err != nil || !lease.Acquired() {
		Ignore(lease) // before the Measurer, which may panic
		next.Measure(ctx, answer)
		return s.notGranted(ctx, next, lease, err)
	}
	var begun any
	measured := false
	defer func() {
		if !measured { // the Measurer panics, and next has not run
			end(lease, ignored)
			return
		}
		next.MeasureEnd(ctx, pipeline.Event{Name: ratelimit.MeasureLease, Duration: clock.Now() - answered}, begun)
	}()
	begun = next.MeasureBegin(ctx, answer)
	measured = true
	return s.run(ctx, next, lease)
}

func (s *Strategy) acquire(ctx context.Context) (limiter.Lease, error) {
	if s.options.Permits == nil {
		return s.limiter.Acquire(ctx, 1)
	}
	n := s.options.Permits(ctx)
	if n < 0 {
		return limiter.Lease{}, fmt.Errorf("%w: Permits returned %d, must be at least 0", limiter.ErrPermitCount, n)
	}
	return s.limiter.Acquire(ctx, n)
}

func (s *Strategy) run(ctx context.Context, next pipeline.Next, lease limiter.Lease) (value any, err error) {
	o := failure // stays if next panics or leaves the goroutine
	defer func() { end(lease, o) }()
	value, err = next.Run(ctx)
	if err == nil && s.options.Handle == nil && ctx.Err() == nil {
		o = success // the way that most executions go
		return value, nil
	}
	o = ignored // for the case that Handle panics
	o = s.outcome(ctx, value, err)
	return value, err
}

func (s *Strategy) outcome(ctx context.Context, value any, err error) outcome {
	switch {
	case s.options.Handle != nil && s.options.Handle(value, err):
		return failure
	case judge.NotCalled(err):
		return ignored
	case s.options.Handle == nil && err != nil && !errors.Is(err, context.Canceled):
		return failure
	case ctx.Err() != nil, pipeline.IsContextError(err):
		return ignored
	default:
		return success
	}
}

// notGranted is for an execution that was not granted anything: by an error,
// which is no rejection, or by a rejection.
func (s *Strategy) notGranted(ctx context.Context, next pipeline.Next, lease limiter.Lease, err error) (any, error) {
	if err != nil {
		Ignore(lease) // a limiter written elsewhere may have granted all the same
		return nil, judge.Uncalled(fmt.Errorf("adaptive: %v: %w", next.Source(), err))
	}
	rejected := rejection(next, lease)
	next.Report(ctx, pipeline.Event{Name: ratelimit.EventRejected, Severity: pipeline.SeverityError, Err: rejected})
	if s.options.OnRejected != nil {
		if instead := s.options.OnRejected(ctx, ratelimit.Rejection{Source: rejected.Source, Lease: lease}); instead != nil {
			return nil, instead
		}
	}
	return nil, rejected
}

// rejection is the error that package ratelimit would return: whoever answers for
// a rejected execution need not know by what kind of limiter it was rejected.
func rejection(next pipeline.Next, lease limiter.Lease) *ratelimit.RejectedError {
	after, _ := lease.RetryAfter()
	return &ratelimit.RejectedError{
		RetryAfter: max(after, 0),
		Reason:     lease.Reason(),
		Source:     next.Source(),
		Lease:      lease,
	}
}
