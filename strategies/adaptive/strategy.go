package adaptive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Options are the options of a strategy, except its limiter. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "AdaptiveLimiter".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Permits returns the weight of an execution. If nil, each weighs 1. The limiter does not learn from an execution of
	// weight 0. A weight below 0 is a [limiter.ErrPermitCount].
	Permits func(ctx context.Context) int `json:"-" yaml:"-"`
	// Handle reports whether an outcome is a failure. If nil, every error is a failure except [context.Canceled] and a
	// rejection by a strategy further inside, such as a rate limiter's. The limiter ignores an outcome that is not a
	// failure if it is such a rejection or a context error, or if the execution's context has ended; any other is a
	// success. [pipeline.HandleResult] makes one of a function that knows the type of the results.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// OnRejected is called for every rejection, after the event. If it returns an error, the execution returns that error
	// instead of the [ratelimit.RejectedError].
	OnRejected func(ctx context.Context, r ratelimit.Rejection) error `json:"-" yaml:"-"`
}

// A Strategy takes permits from a limiter before an execution goes on, and hands the outcome of the execution to the
// limiter. Make one with [New]. It is safe for concurrent use.
type Strategy struct {
	options Options
	limiter limiter.Limiter
	owned   *Limiter // the limiter if the strategy made it, else nil
}

// New makes a strategy of a [Limiter], a [Throttler], or a limiter that they are part of, such as a chain of both. It
// never closes l. If l is nil, the strategy makes and owns a Limiter with the default options. If l is an interface that
// holds a nil pointer, making a pipeline of the strategy fails. If o is nil, it has the defaults.
//
// With any other limiter it does what the strategy of package ratelimit does.
func New(l limiter.Limiter, o *Options) *Strategy {
	s := &Strategy{limiter: l, options: *cmp.Or(o, new(Options))}
	s.options.Name = cmp.Or(s.options.Name, "AdaptiveLimiter")
	if l == nil {
		s.owned = weir.Must(NewLimiter(nil))
		s.limiter = s.owned
	}
	return s
}

// Name returns [Options.Name], or "AdaptiveLimiter".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Limiter returns the limiter.
func (s *Strategy) Limiter() limiter.Limiter { return s.limiter }

// Validate returns a [weir.OptionsError] if the limiter is nil.
func (s *Strategy) Validate() error {
	var p validate.Problems
	if isnil.Value(s.limiter) {
		p.Add("Limiter", nil, "must not be nil")
	}
	return p.Err("adaptive")
}

// Close closes the limiter if the strategy made it.
func (s *Strategy) Close() error {
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}

// Execute takes the permits, runs next, and hands the outcome to the limiter. A panic is a failure. In the pipeline of a
// weirhttp.Transport, the outcome and the time that count are those of the header of a response, and the permits are held
// until its body is closed or read to its end. Execute implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if next.Measuring() {
		return s.measured(ctx, next)
	}
	lease, err := s.acquire(ctx)
	if err != nil || !lease.Acquired() {
		return s.notGranted(ctx, next, lease, err)
	}
	value, err, _ := s.run(ctx, next, lease, nil)
	return value, err
}

// measured is Execute with a Measurer. The measurements are those of package ratelimit, with the same names.
func (s *Strategy) measured(ctx context.Context, next pipeline.Next) (any, error) {
	asked := clock.Now()
	lease, err := s.acquire(ctx)
	answered := clock.Now()
	answer := pipeline.Event{Name: ratelimit.MeasureRequest, Duration: answered - asked, Err: err}
	if err != nil || !lease.Acquired() {
		if err == nil {
			answer.Err = rejection(next, lease)
		}
		Ignore(lease) // before the Measurer, which can panic
		next.Measure(ctx, answer)
		return s.notGranted(ctx, next, lease, err)
	}
	m := measurement{ctx: ctx, next: next, granted: answered}
	measured, held := false, false
	defer func() {
		switch {
		case !measured: // the Measurer panicked, and next has not run
			Ignore(lease)
		case !held:
			m.end()
		}
	}()
	m.begun = next.MeasureBegin(ctx, answer)
	measured = true
	value, err, held := s.run(ctx, next, lease, &m)
	return value, err
}

// A measurement is that of a lease.
type measurement struct {
	ctx     context.Context
	next    pipeline.Next
	granted time.Duration // by clock.Now
	begun   any           // from MeasureBegin
}

func (m *measurement) end() {
	m.next.MeasureEnd(m.ctx, pipeline.Event{Name: ratelimit.MeasureLease, Duration: clock.Now() - m.granted}, m.begun)
}

// Peek returns what the limiter would answer an execution with that context now, without waiting; see [limiter.Peeker].
// It calls [Options.Permits] and takes nothing. The error is [errors.ErrUnsupported] if the limiter is no Peeker, as a
// [Throttler] is not.
func (s *Strategy) Peek(ctx context.Context) (limiter.Lease, error) {
	return ratelimit.New(s.limiter, &ratelimit.Options{Permits: s.options.Permits}).Peek(ctx)
}

// acquire asks the limiter for the permits of an execution.
func (s *Strategy) acquire(ctx context.Context) (limiter.Lease, error) {
	n := 1
	if s.options.Permits != nil {
		if n = s.options.Permits(ctx); n < 0 {
			return limiter.Lease{}, fmt.Errorf("%w: Permits returned %d, must be at least 0", limiter.ErrPermitCount, n)
		}
	}
	return s.limiter.Acquire(ctx, n)
}

// run runs next and ends the lease by its outcome, or lets a [holding.Holder] end it. Then held is true, and m, if it is
// not nil, ends with the lease.
func (s *Strategy) run(ctx context.Context, next pipeline.Next, lease limiter.Lease, m *measurement) (value any, err error, held bool) {
	o := failure // stays if next panics or calls Goexit
	defer func() {
		if !held {
			settle(lease, o)
		}
	}()
	value, err = next.Run(ctx)
	if err == nil && s.options.Handle == nil && ctx.Err() == nil {
		o = success // most executions end here
	} else {
		o = ignored // stays if Handle panics
		o = s.outcome(ctx, value, err)
	}
	if h := holding.Of(ctx, lease.Lends(), value, err); h != nil {
		learn(lease, o)
		held = h.Hold(value, endOf(lease, m))
	}
	return value, err, held
}

// endOf returns a function that ends a lease that was held, and its measurement.
func endOf(lease limiter.Lease, m *measurement) func() {
	if m == nil {
		return lease.Release
	}
	own := *m
	return func() {
		defer own.end()
		lease.Release()
	}
}

// outcome returns how the result of an execution counts.
func (s *Strategy) outcome(ctx context.Context, value any, err error) outcome {
	switch {
	case s.options.Handle != nil && s.options.Handle(value, err):
		return failure
	case pipeline.NotCalled(err):
		return ignored
	case s.options.Handle == nil && err != nil && !errors.Is(err, context.Canceled):
		return failure
	case ctx.Err() != nil, pipeline.IsContextError(err):
		return ignored
	default:
		return success
	}
}

// notGranted ends an execution that got no permits: by an error, which is not a rejection, or by a rejection.
func (s *Strategy) notGranted(ctx context.Context, next pipeline.Next, lease limiter.Lease, err error) (any, error) {
	if err != nil {
		Ignore(lease) // a limiter of the program can grant permits and return an error
		return nil, judge.NoPermit(ctx, "adaptive", next.Source(), err)
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

// rejection returns the error of a rejection. It is that of package ratelimit, so that a program handles one type of
// rejection, whichever limiter rejects.
func rejection(next pipeline.Next, lease limiter.Lease) *ratelimit.RejectedError {
	return &ratelimit.RejectedError{Reason: lease.Reason(), Source: next.Source(), Lease: lease}
}
