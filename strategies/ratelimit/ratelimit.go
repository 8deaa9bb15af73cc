package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deadline"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/untimed"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// DefaultPermitLimit is the limit of the concurrency limiter that a strategy
// makes for itself when it is given none.
const DefaultPermitLimit = 1000

// The events of this package.
const (
	// EventRejected: an execution was rejected; Err is the [*RejectedError]. Error.
	EventRejected = "OnRateLimiterRejected"
	// EventShadowRejected: one would have been, without [Options.Shadow]; Err is
	// what it would have got. Warning.
	EventShadowRejected = "OnRateLimiterShadowRejected"
	// EventShadowError: the limiter failed, and because of [Options.Shadow] the
	// execution went on; Err is what it would have got. Warning.
	EventShadowError = "OnRateLimiterShadowError"
)

// What is measured for a [pipeline.Measurer].
const (
	// MeasureRequest: the limiter has answered. Duration is how long that was
	// waited for; Err is nil if the permits were granted, a [*RejectedError], or
	// what else the limiter returned, as when the context ended.
	MeasureRequest = "RateLimiterRequest"
	// MeasureLease: an execution that held permits has ended; Duration is how
	// long it held them.
	MeasureLease = "RateLimiterLease"
)

// Options are what can be said about the strategy besides its limiter. The zero
// Options are the defaults.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "RateLimiter".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Permits is the cost of an execution; nil is 1 for each. With 0 the
	// execution takes nothing and goes on if anything is left; less than 0 is a
	// [limiter.ErrPermitCount].
	Permits func(ctx context.Context) int `json:"-" yaml:"-"`
	// OnRejected is called for every rejection, after the event and before the
	// error is returned. If it returns an error, that one is returned instead. A
	// circuit breaker around the strategy counts it as a failure, unless it has a
	// method NotCalled() bool that returns true, as [RejectedError] has.
	OnRejected func(ctx context.Context, r Rejection) error `json:"-" yaml:"-"`
	// Shadow: decide and report, but never reject. The limiter is asked without
	// waiting in its queue, its permits are held as ever, OnRejected is not
	// called, and an execution that would have been rejected goes on.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`
}

// A Rejection is what [Options.OnRejected] is told.
type Rejection struct {
	Source pipeline.Source // which pipeline and which strategy rejected
	Lease  limiter.Lease   // the limiter's answer
}

// A Strategy takes permits of a limiter for an execution. Make one with [New] or
// [NewPartitioned]. It is safe for concurrent use.
type Strategy struct {
	instant
	options Options
	limiter limiter.Limiter
	owned   io.Closer // nil: the limiter was passed in
	problem error     // what Validate returns
}

// instant is embedded under a name that is not exported.
type instant = deadline.Instant

// New wraps l. With a nil l the strategy makes and owns a concurrency limiter of
// 1000 permits and no queue. A nil o means the defaults. An l that was passed in
// is never closed by the strategy.
func New(l limiter.Limiter, o *Options) *Strategy {
	s := newStrategy(o)
	if l != nil {
		s.use(l, isnil.Value(l))
		return s
	}
	own, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: DefaultPermitLimit})
	s.use(own, false)
	s.owned, s.problem = own, err
	return s
}

// NewPartitioned wraps a limiter that is partitioned by what resource finds in
// the context of an execution: a tenant, a user, a request. It is never closed
// by the strategy. Both l and resource must be set; if one is not, making a
// pipeline of the strategy fails.
func NewPartitioned[R any](l limiter.Partitioned[R], resource func(ctx context.Context) R, o *Options) *Strategy {
	s := newStrategy(o)
	s.use(&partitioned[R]{limiter: l, resource: resource}, isnil.Value(l))
	if resource == nil {
		s.problem = errors.Join(s.problem, errNilResource)
	}
	return s
}

var (
	errNilLimiter  = errors.New("ratelimit: the limiter is nil")
	errNilResource = errors.New("ratelimit: the resource function is nil")
)

func newStrategy(o *Options) *Strategy {
	s := new(Strategy)
	if o != nil {
		s.options = *o
	}
	if s.options.Name == "" {
		s.options.Name = "RateLimiter"
	}
	return s
}

func (s *Strategy) use(l limiter.Limiter, isNil bool) {
	s.limiter = l
	s.instant = deadline.InstantIf(s.options.Permits == nil && waitsForDone(l), s)
	if isNil {
		s.problem = errNilLimiter
	}
}

// waitsForDone reports whether all that takes time in an Acquire of l is a wait that the Done of its context ends.
// Limiters written elsewhere, and those that call functions of the program, may take their time otherwise.
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

// Options returns the options, with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Limiter returns the limiter that the strategy asks; nil for a partitioned one,
// which answers only for a resource.
func (s *Strategy) Limiter() limiter.Limiter {
	if _, ok := s.limiter.(interface{ partitioned() }); ok {
		return nil
	}
	return s.limiter
}

// Validate returns what is wrong with what the strategy was made of, or nil.
func (s *Strategy) Validate() error {
	if s.limiter == nil && s.problem == nil { // made without New
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

// Execute takes the permits, runs next, and gives them back when it has
// returned, panicked or left the goroutine. It implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if next.Measuring() {
		return s.measured(ctx, next)
	}
	lease, err := s.acquire(ctx)
	if err != nil {
		lease.Release() // a limiter written elsewhere may have granted all the same
		return s.failed(deadline.Full(ctx), next, err)
	}
	if !lease.Acquired() {
		return s.rejected(deadline.Full(ctx), next, lease)
	}
	defer lease.Release()
	return next.Run(ctx)
}

// measured is Execute where somebody measures. It is a function of its own so
// that nobody else pays for the clock.
func (s *Strategy) measured(ctx context.Context, next pipeline.Next) (any, error) {
	asked := deadline.NowIn(ctx)
	lease, err := s.acquire(ctx)
	answered := deadline.NowIn(ctx)
	full := deadline.Full(ctx)
	answer := pipeline.Event{Name: MeasureRequest, Duration: answered - asked, Err: err}
	if err == nil && !lease.Acquired() {
		rejection := newRejectedError(next.Source(), lease)
		answer.Err = rejection
		next.Measure(full, answer)
		return s.reject(full, next, rejection)
	}
	if err != nil {
		lease.Release()
		next.Measure(full, answer)
		return s.failed(full, next, err)
	}
	h := holding{ctx: full, next: next, lease: lease, since: answered}
	defer h.end()
	h.begun = next.MeasureBegin(full, answer)
	h.measured = true
	return next.Run(ctx)
}

// A holding is a lease that is measured while it is held. It stays on the stack.
type holding struct {
	ctx      context.Context
	next     pipeline.Next
	lease    limiter.Lease
	since    time.Duration
	begun    any
	measured bool // the Measurer has returned
}

func (h *holding) end() {
	if h.measured {
		defer h.measureEnd() // also if the lease's Release panics
	}
	h.lease.Release()
}

func (h *holding) measureEnd() {
	e := pipeline.Event{Name: MeasureLease}
	if !untimed.Is(h.begun) {
		e.Duration = clock.Now() - h.since
	}
	h.next.MeasureEnd(h.ctx, e, h.begun)
}

func (s *Strategy) acquire(ctx context.Context) (limiter.Lease, error) {
	n := 1
	if s.options.Permits != nil {
		if n = s.options.Permits(ctx); n < 0 {
			return limiter.Lease{}, fmt.Errorf("%w: Permits returned %d, must be at least 0", limiter.ErrPermitCount, n)
		}
	}
	if s.options.Shadow {
		return s.limiter.TryAcquire(ctx, n)
	}
	return s.limiter.Acquire(ctx, n)
}

// failed is for a limiter that took no decision. That is no rejection: nothing
// is known of the load, and trying again later may not help.
func (s *Strategy) failed(ctx context.Context, next pipeline.Next, err error) (any, error) {
	err = fmt.Errorf("ratelimit: %v: %w", next.Source(), err)
	if !s.options.Shadow {
		return nil, judge.Uncalled(err)
	}
	if ctx.Err() == nil { // else the rest says so itself
		next.Report(ctx, pipeline.Event{Name: EventShadowError, Severity: pipeline.SeverityWarning, Err: err})
	}
	return next.Run(ctx)
}

func (s *Strategy) rejected(ctx context.Context, next pipeline.Next, lease limiter.Lease) (any, error) {
	if s.options.Shadow && !next.Listening() {
		return next.Run(ctx)
	}
	return s.reject(ctx, next, newRejectedError(next.Source(), lease))
}

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

// partitioned is a partitioned limiter as seen from one strategy: the resource
// is in the context.
type partitioned[R any] struct {
	limiter  limiter.Partitioned[R]
	resource func(ctx context.Context) R
}

func (p *partitioned[R]) partitioned() {}
func (p *partitioned[R]) inner() any   { return p.limiter }

func (p *partitioned[R]) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.limiter.TryAcquire(ctx, p.resource(ctx), n)
}

func (p *partitioned[R]) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.limiter.Acquire(ctx, p.resource(ctx), n)
}
