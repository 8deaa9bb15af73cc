package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/untimed"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// DefaultPermitLimit is the limit of the concurrency limiter that [New] makes if it is given none.
const DefaultPermitLimit = 1000

// The events of this package.
const (
	// EventRejected means that an execution was rejected. Err is the [*RejectedError]. Its severity is Error.
	EventRejected = "OnRateLimiterRejected"
	// EventShadowRejected means that an execution would have been rejected without [Options.Shadow], and goes on. Err is
	// the [*RejectedError], with Shadow set. Its severity is Warning.
	EventShadowRejected = "OnRateLimiterShadowRejected"
	// EventShadowError means that the limiter failed with Err, and that the execution would have failed without
	// [Options.Shadow], and goes on. Its severity is Warning.
	EventShadowError = "OnRateLimiterShadowError"
)

// The measurements for a [pipeline.Measurer].
const (
	// MeasureRequest means that a request to the limiter has ended. Duration is how long the execution waited. Err is
	// nil if the permits were granted, a [*RejectedError] if they were refused, or the limiter's error, for example
	// because the context ended.
	MeasureRequest = "RateLimiterRequest"
	// MeasureLease means that the permits of an execution were released. Duration is how long it held them.
	MeasureLease = "RateLimiterLease"
)

// Options are the options of a strategy, except its limiter. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "RateLimiter".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Permits returns the cost of an execution. If nil, each costs 1. An execution that costs 0 takes nothing and goes
	// on if a permit is left. A cost below 0 is a [limiter.ErrPermitCount].
	Permits func(ctx context.Context) int `json:"-" yaml:"-"`
	// OnRejected, if it is not nil, is called for every rejection, after the event. If it returns an error, the
	// execution returns that error instead of the [RejectedError]. A circuit breaker outside counts such an error as
	// a failure, unless it has a method NotCalled() bool that returns true, as RejectedError has.
	OnRejected func(ctx context.Context, r Rejection) error `json:"-" yaml:"-"`
	// Shadow makes the strategy decide and report, but never reject. It takes permits without waiting in the limiter's
	// queue, and holds them as usual. An execution that would have been rejected goes on, and OnRejected is not called.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`
}

// A Rejection is a rejected execution, as [Options.OnRejected] gets it.
type Rejection struct {
	Source pipeline.Source // the strategy and its pipeline
	Lease  limiter.Lease   // the limiter's answer
}

// A Strategy takes permits from a limiter for each execution. Make one with [New] or [NewPartitioned]. It is safe for
// concurrent use.
type Strategy struct {
	instant
	options Options
	limiter limiter.Limiter
	owned   *limiter.Concurrency // the limiter if the strategy made it, else nil
}

// instant is an alias, so that the field in which a Strategy embeds it is not exported.
type instant = deadline.Instant

// New makes a strategy that takes permits from l. It never closes l. If l is nil, the strategy makes and owns a
// concurrency limiter of 1000 permits and no queue. If l is an interface that holds a nil pointer, making a pipeline of
// the strategy fails. If o is nil, it has the defaults.
func New(l limiter.Limiter, o *Options) *Strategy {
	if l != nil {
		return newStrategy(l, o)
	}
	own := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: DefaultPermitLimit}))
	s := newStrategy(own, o)
	s.owned = own
	return s
}

// NewPartitioned makes a strategy that takes permits from a partitioned limiter. resource returns what the limiter is
// partitioned by, from the context of an execution: a tenant, a user, a request. The strategy never closes l. If l or
// resource is nil, making a pipeline of the strategy fails. If o is nil, it has the defaults.
func NewPartitioned[R any](l limiter.Partitioned[R], resource func(ctx context.Context) R, o *Options) *Strategy {
	return newStrategy(&partitioned[R]{limiter: l, resource: resource}, o)
}

func newStrategy(l limiter.Limiter, o *Options) *Strategy {
	s := &Strategy{limiter: l, options: *cmp.Or(o, new(Options))}
	s.options.Name = cmp.Or(s.options.Name, "RateLimiter")
	s.instant = deadline.InstantIf(s.options.Permits == nil && waitsForDone(l), s)
	return s
}

// waitsForDone reports whether Acquire of l takes time only by waiting, and stops waiting when its context is done. A
// limiter of the program, or one that calls functions of the program, can take time in other ways.
func waitsForDone(l limiter.Limiter) bool {
	switch l.(type) {
	case *limiter.TokenBucket, *limiter.FixedWindow, *limiter.SlidingWindow, *limiter.Concurrency, *limiter.Unlimited:
		return true
	default:
		return false
	}
}

// Name returns [Options.Name], or "RateLimiter".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Limiter returns the limiter, or nil if the strategy was made with [NewPartitioned].
func (s *Strategy) Limiter() limiter.Limiter {
	if _, ok := s.limiter.(anyPartitioned); ok {
		return nil
	}
	return s.limiter
}

// Validate returns a [weir.OptionsError] if the limiter or the resource function is nil.
func (s *Strategy) Validate() error {
	var l any = s.limiter
	hasResource := true
	if w, ok := l.(anyPartitioned); ok {
		l, hasResource = w.inner()
	}
	var p validate.Problems
	if isnil.Value(l) {
		p.Add("Limiter", nil, "must not be nil")
	}
	if !hasResource {
		p.Add("Resource", nil, "must not be nil")
	}
	return p.Err("ratelimit")
}

// Close closes the limiter if the strategy made it.
func (s *Strategy) Close() error {
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}

// Execute takes the permits, runs next, and releases them, also if next panics or calls Goexit. In the pipeline of a
// weirhttp.Transport, permits that are lent are held until the body of the response is closed or read to its end. It
// implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if next.Measuring() {
		return s.measured(ctx, next)
	}
	lease, err := s.acquire(ctx)
	if err != nil {
		lease.Release() // a limiter of the program can grant permits and return an error
		return s.limiterFailed(deadline.Full(ctx), next, err)
	}
	if !lease.Acquired() {
		return s.rejectUnmeasured(deadline.Full(ctx), next, lease)
	}
	defer func() { lease.Release() }()
	result, err := next.Run(ctx)
	if h := holding.Of(ctx, lease.Lends(), result, err); h != nil {
		lease.Succeeded()
		if h.Hold(result, lease.Release) {
			lease = limiter.Lease{}
		}
	}
	return result, err
}

// measured is Execute with a Measurer. It is a function of its own so that executions without one do not pay for the
// clock.
func (s *Strategy) measured(ctx context.Context, next pipeline.Next) (any, error) {
	asked := deadline.NowIn(ctx)
	lease, err := s.acquire(ctx)
	answered := deadline.NowIn(ctx)
	full := deadline.Full(ctx)
	answer := pipeline.Event{Name: MeasureRequest, Duration: answered - asked, Err: err}
	if err == nil && !lease.Acquired() {
		rejection := s.rejection(next, lease)
		answer.Err = rejection
		next.Measure(full, answer)
		return s.reject(full, next, rejection)
	}
	if err != nil {
		lease.Release()
		next.Measure(full, answer)
		return s.limiterFailed(full, next, err)
	}
	m := measuredLease{ctx: full, next: next, lease: lease, granted: answered}
	defer m.release()
	m.begun = next.MeasureBegin(full, answer)
	m.measuring = true
	result, err := next.Run(ctx)
	if h := holding.Of(ctx, lease.Lends(), result, err); h != nil {
		lease.Succeeded()
		held := m // a copy, so that m stays on the stack
		if h.Hold(result, held.release) {
			m = measuredLease{}
		}
	}
	return result, err
}

// A measuredLease is a lease whose end is measured.
type measuredLease struct {
	ctx       context.Context
	next      pipeline.Next
	lease     limiter.Lease
	granted   time.Duration // by clock.Now
	begun     any           // from MeasureBegin
	measuring bool          // MeasureBegin has returned
}

// release releases the lease, and measures its end.
func (m *measuredLease) release() {
	if m.measuring {
		defer m.measureEnd() // also if Release panics
	}
	m.lease.Release()
}

func (m *measuredLease) measureEnd() {
	e := pipeline.Event{Name: MeasureLease}
	if !untimed.Is(m.begun) {
		e.Duration = clock.Now() - m.granted
	}
	m.next.MeasureEnd(m.ctx, e, m.begun)
}

// Peek returns what the limiter would answer an execution with that context now, without waiting; see [limiter.Peeker].
// It calls [Options.Permits] and the resource function of a partitioned limiter, and takes nothing. With [Options.Shadow]
// the execution would go on, whatever the answer. The error is [errors.ErrUnsupported] if the limiter is no Peeker or, if
// it is partitioned, no [limiter.PartitionedPeeker].
func (s *Strategy) Peek(ctx context.Context) (limiter.Lease, error) {
	n, err := s.permits(ctx)
	if err != nil {
		return limiter.Lease{}, err
	}
	if p, ok := s.limiter.(limiter.Peeker); ok {
		return p.Peek(ctx, n)
	}
	return limiter.Lease{}, noPeekError(s.limiter)
}

func noPeekError(l any) error {
	return fmt.Errorf("ratelimit: a %s has no Peek: %w", typeName(l), errors.ErrUnsupported)
}

// permits returns the cost of an execution. It is small enough to be inlined.
func (s *Strategy) permits(ctx context.Context) (int, error) {
	if s.options.Permits == nil {
		return 1, nil
	}
	return s.askPermits(ctx)
}

// askPermits calls [Options.Permits].
func (s *Strategy) askPermits(ctx context.Context) (n int, err error) {
	if n = s.options.Permits(ctx); n < 0 {
		return 0, fmt.Errorf("%w: Permits returned %d, must be at least 0", limiter.ErrPermitCount, n)
	}
	return n, nil
}

// acquire asks the limiter for the permits of an execution.
func (s *Strategy) acquire(ctx context.Context) (limiter.Lease, error) {
	n, err := s.permits(ctx)
	if err != nil {
		return limiter.Lease{}, err
	}
	if s.options.Shadow {
		return s.limiter.TryAcquire(ctx, n)
	}
	return s.limiter.Acquire(ctx, n)
}

// limiterFailed ends an execution for which the limiter returned an error. That is not a rejection: it says nothing
// about the load, and another attempt later need not help. It is a [pipeline.NotCalled] error. In Shadow the execution
// goes on.
func (s *Strategy) limiterFailed(ctx context.Context, next pipeline.Next, err error) (any, error) {
	if !s.options.Shadow {
		return nil, judge.NoPermit(ctx, "ratelimit", next.Source(), err)
	}
	if ctx.Err() == nil { // else next.Run returns the error of the context
		err = fmt.Errorf("ratelimit: %v: %w", next.Source(), err)
		next.Report(ctx, pipeline.Event{Name: EventShadowError, Severity: pipeline.SeverityWarning, Err: err})
	}
	return next.Run(ctx)
}

// rejectUnmeasured is reject for an execution without a Measurer. It makes the error only if there is a use for it.
func (s *Strategy) rejectUnmeasured(ctx context.Context, next pipeline.Next, lease limiter.Lease) (any, error) {
	if s.options.Shadow && !next.Listening() {
		return next.Run(ctx)
	}
	return s.reject(ctx, next, s.rejection(next, lease))
}

// rejection returns the error of an execution that the limiter rejected.
func (s *Strategy) rejection(next pipeline.Next, lease limiter.Lease) *RejectedError {
	return &RejectedError{Reason: lease.Reason(), Source: next.Source(), Lease: lease, Shadow: s.options.Shadow}
}

// reject reports err and returns it, or runs next in Shadow.
func (s *Strategy) reject(ctx context.Context, next pipeline.Next, err *RejectedError) (any, error) {
	if s.options.Shadow {
		next.Report(ctx, pipeline.Event{Name: EventShadowRejected, Severity: pipeline.SeverityWarning, Err: err})
		return next.Run(ctx)
	}
	next.Report(ctx, pipeline.Event{Name: EventRejected, Severity: pipeline.SeverityError, Err: err})
	if s.options.OnRejected != nil {
		if instead := s.options.OnRejected(ctx, Rejection{Source: err.Source, Lease: err.Lease}); instead != nil {
			return nil, instead
		}
	}
	return nil, err
}

// partitioned makes a Limiter of a partitioned limiter: it finds the resource in the context.
type partitioned[R any] struct {
	limiter  limiter.Partitioned[R]
	resource func(ctx context.Context) R
}

// An anyPartitioned is a *partitioned[R] of some R.
type anyPartitioned interface {
	inner() (partitionedLimiter any, hasResource bool)
}

func (p *partitioned[R]) inner() (any, bool) { return p.limiter, p.resource != nil }

func (p *partitioned[R]) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.limiter.TryAcquire(ctx, p.resource(ctx), n)
}

func (p *partitioned[R]) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.limiter.Acquire(ctx, p.resource(ctx), n)
}

func (p *partitioned[R]) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	if l, ok := p.limiter.(limiter.PartitionedPeeker[R]); ok {
		return l.Peek(ctx, p.resource(ctx), n)
	}
	return limiter.Lease{}, noPeekError(p.limiter)
}
