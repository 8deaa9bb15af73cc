package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/strategies/internal/judge"
	"github.com/weir-go/weir/strategies/internal/learning"
)

// defaultPermitLimit is the limit of the concurrency limiter that [New] makes if it is given none.
const defaultPermitLimit = 1000

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

// The measurements for [pipeline.Hooks.OnMeasurement].
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
	options    Options
	limiter    limiter.Limiter      // what is asked
	given      any                  // what the program has given: a limiter, or one that is partitioned
	noResource bool                 // it is partitioned, and the function is nil
	learning   *learning.Limiter    // nil if the limiter is not of package adaptive
	owned      *limiter.Concurrency // the limiter if the strategy made it, else nil
}

// New makes a strategy that takes permits from l. It never closes l. If l is nil, the strategy makes and owns a
// concurrency limiter of 1000 permits and no queue. If l is an interface that holds a nil pointer, making a pipeline of
// the strategy fails. If o is nil, the defaults apply.
func New(l limiter.Limiter, o *Options) *Strategy {
	switch l := l.(type) {
	case nil:
		own := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: defaultPermitLimit}))
		s := newStrategy(own, own, o)
		s.owned = own
		return s
	case *learning.Limiter:
		s := newStrategy(l.Limiter, l.Limiter, o)
		s.learning = l
		return s
	}
	return newStrategy(l, l, o)
}

// NewPartitioned makes a strategy that takes permits from a partitioned limiter. resource returns what the limiter is
// partitioned by, from the context of an execution: a tenant, a user, a request. The strategy never closes l. If l or
// resource is nil, making a pipeline of the strategy fails. If o is nil, the defaults apply.
func NewPartitioned[R any](l limiter.Partitioned[R], resource func(ctx context.Context) R, o *Options) *Strategy {
	s := newStrategy(&partitioned[R]{limiter: l, resource: resource}, l, o)
	s.noResource = resource == nil
	return s
}

func newStrategy(l limiter.Limiter, given any, o *Options) *Strategy {
	s := &Strategy{limiter: l, given: given, options: *cmp.Or(o, new(Options))}
	s.options.Name = cmp.Or(s.options.Name, "RateLimiter")
	return s
}

// Name returns [Options.Name], or "RateLimiter".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Limiter returns the limiter, or nil if the strategy was made with [NewPartitioned].
func (s *Strategy) Limiter() limiter.Limiter {
	l, _ := s.given.(limiter.Limiter)
	return l
}

// Validate returns a [weir.OptionsError] if the limiter or the resource function is nil.
func (s *Strategy) Validate() error {
	var p validate.Problems
	if s == nil || isnil.Value(s.given) {
		p.Add("Limiter", nil, "must not be nil")
	}
	if s != nil && s.noResource {
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
	var asked time.Duration
	if next.Measuring() {
		asked = clock.Now()
	}
	lease, err := s.acquire(ctx)
	if err != nil || !lease.Acquired() {
		return s.notGranted(ctx, next, lease, err, asked)
	}
	u := use{ctx: ctx, next: next, lease: lease, outcome: judge.Ignored}
	defer func() {
		if !u.held {
			s.release(u)
		}
	}()
	deterministic.Granted(ctx, lease.Permits())
	if next.Measuring() {
		u.granted = clock.Now()
		u.ended = next.Measure(ctx, pipeline.Event{Name: MeasureRequest, Duration: u.granted - asked})
	}
	u.outcome = judge.Failure // stays if next panics or calls Goexit
	result, err := next.Run(ctx)
	if s.learning != nil {
		u.outcome = judge.Ignored // stays if a function of the program panics
		u.outcome = s.learning.Outcome(ctx, result, err)
	}
	if h := holding.Of(ctx, lease.Lends(), result, err); h != nil {
		u.held = s.hold(h, result, u)
	}
	return result, err
}

// A use is an execution that holds permits.
type use struct {
	ctx     context.Context
	next    pipeline.Next
	lease   limiter.Lease
	outcome judge.Outcome
	held    bool                                        // a Holder releases the permits
	granted time.Duration                               // by clock.Now; only if there is a Listener for measurements
	ended   func(ctx context.Context, e pipeline.Event) // nil if no Listener wants to know the end
}

// hold leaves the release of the permits to h, and reports whether it takes that over.
func (s *Strategy) hold(h holding.Holder, result any, u use) bool {
	if s.learning != nil {
		s.learning.Learn(u.lease, u.outcome)
	} else {
		u.lease.Succeeded()
	}
	return h.Hold(result, func() { s.release(u) })
}

// release releases the permits, and measures their end.
func (s *Strategy) release(u use) {
	if u.ended != nil { // also if Settle panics
		defer func() {
			u.ended(u.ctx, pipeline.Event{Name: MeasureLease, Source: u.next.Source(), Duration: clock.Now() - u.granted})
		}()
	}
	if s.learning != nil {
		s.learning.Settle(u.lease, u.outcome)
	} else {
		u.lease.Release()
	}
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

// permits returns the cost of an execution.
func (s *Strategy) permits(ctx context.Context) (int, error) {
	if s.options.Permits == nil {
		return 1, nil
	}
	n := s.options.Permits(ctx)
	if n < 0 {
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

// notGranted ends an execution that got no permits, or lets it go on in Shadow. An error of the limiter is not a rejection:
// it says nothing about the load, and another attempt later need not help. It is a [pipeline.NotCalled] error.
func (s *Strategy) notGranted(ctx context.Context, next pipeline.Next, lease limiter.Lease, err error, asked time.Duration) (any, error) {
	rejected := &RejectedError{Reason: lease.Reason(), Source: next.Source(), Lease: lease, Shadow: s.options.Shadow}
	answer := pipeline.Event{Name: MeasureRequest, Err: rejected}
	if err != nil {
		lease.Refund() // a limiter of the program can grant permits and return an error
		answer.Err = err
	}
	if next.Measuring() {
		answer.Duration = clock.Now() - asked
		next.Measure(ctx, answer)
	}
	switch {
	case s.options.Shadow && err == nil:
		next.Report(ctx, pipeline.Event{Name: EventShadowRejected, Severity: pipeline.SeverityWarning, Err: rejected})
		return next.Run(ctx)
	case s.options.Shadow:
		if ctx.Err() == nil { // else next.Run returns the error of the context
			err = fmt.Errorf("ratelimit: %v: %w", next.Source(), err)
			next.Report(ctx, pipeline.Event{Name: EventShadowError, Severity: pipeline.SeverityWarning, Err: err})
		}
		return next.Run(ctx)
	case err != nil:
		return nil, noPermit(ctx, next.Source(), err)
	}
	next.Report(ctx, pipeline.Event{Name: EventRejected, Severity: pipeline.SeverityError, Err: rejected})
	if s.options.OnRejected != nil {
		if instead := s.options.OnRejected(ctx, Rejection{Source: rejected.Source, Lease: lease}); instead != nil {
			return nil, instead
		}
	}
	return nil, rejected
}

// partitioned makes a Limiter of a partitioned limiter: it finds the resource in the context.
type partitioned[R any] struct {
	limiter  limiter.Partitioned[R]
	resource func(ctx context.Context) R
}

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

// A Description is what [Strategy.Describe] returns as the options.
type Description struct {
	Options
	// Limiter is the type of the limiter, such as "limiter.TokenBucket".
	Limiter string `json:"limiter"`
	// Limits are its options in force, if it has a method Limits, as the limiters of package limiter have; otherwise nil.
	Limits any `json:"limits,omitempty"`
}

// Describe returns a [Description], and the state of the limiter: its [limiter.Statistics], the number of its partitions
// as [Partitions], or nil if it has neither. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	d := Description{Options: s.options, Limiter: typeName(s.given)}
	if l, ok := s.given.(interface{ Limits() rate.Limits }); ok {
		d.Limits = limiter.OptionsOf(l.Limits())
	}
	switch l := s.given.(type) {
	case limiter.StatisticsProvider:
		state = l.Statistics()
	case interface{ Len() int }:
		state = Partitions(l.Len())
	}
	return d, state
}

// Partitions is the state of a strategy whose limiter is partitioned: the number of partitions.
type Partitions int

// typeName returns the name of the type of l with its package and without type arguments, which would make it unreadable.
func typeName(l any) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", l), "*"), "[")
	return name
}
