package adaptive

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/internal/judge"
	"github.com/weir-go/weir/strategies/internal/learning"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Options are the options of a strategy, except its limiter. The zero Options are the defaults.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "AdaptiveLimiter".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Permits returns the weight of an execution. If nil, each weighs 1. The limiter does not learn from an execution of
	// weight 0. A weight below 0 is a [limiter.ErrPermitCount].
	Permits func(ctx context.Context) int `json:"-" yaml:"-"`
	// Handle reports whether an outcome is a failure. If nil, every error is a failure except [context.Canceled], any error
	// of an execution that its caller cancelled, and a rejection by a strategy further inside, such as a rate limiter's. The
	// limiter ignores an outcome that is not a failure if it is such a rejection or a context error, or if the execution's
	// context has ended; any other is a success. [pipeline.HandleResult] makes one of a function that knows the type of the results.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// OnRejected is called for every rejection, after the event. If it returns an error, the execution returns that error
	// instead of the [ratelimit.RejectedError].
	OnRejected func(ctx context.Context, r ratelimit.Rejection) error `json:"-" yaml:"-"`
}

// A Strategy takes permits from a limiter before an execution goes on, and hands the outcome of the execution to the
// limiter. It is a [ratelimit.Strategy], with the events, measurements and errors of that, and a panic is a failure. Make one
// with [New]. It is safe for concurrent use.
//
// In the pipeline of a weirhttp.Transport, the outcome and the time that count are those of the header of a response, and the
// permits are held until its body is closed or read to its end.
type Strategy struct {
	*ratelimit.Strategy
	options Options
	owned   *Limiter // the limiter if the strategy made it, else nil
}

// New makes a strategy of a [Limiter], a [Throttler], or a limiter that they are part of, such as a chain of both. It
// never closes l. If l is nil, the strategy makes and owns a Limiter with the default options. If l is an interface that
// holds a nil pointer, making a pipeline of the strategy fails. If o is nil, the defaults apply.
//
// With any other limiter it does what the strategy of package ratelimit does.
func New(l limiter.Limiter, o *Options) *Strategy {
	s := &Strategy{options: *cmp.Or(o, new(Options))}
	s.options.Name = cmp.Or(s.options.Name, "AdaptiveLimiter")
	if l == nil {
		s.owned = weir.Must(NewLimiter(nil))
		l = s.owned
	}
	s.Strategy = ratelimit.New(
		&learning.Limiter{Limiter: l, Outcome: s.outcome, Learn: learn, Settle: settle},
		&ratelimit.Options{Name: s.options.Name, Permits: s.options.Permits, OnRejected: s.options.OnRejected},
	)
	return s
}

// Options returns the options with the defaults filled in.
func (s *Strategy) Options() Options { return s.options }

// Close closes the limiter if the strategy made it.
func (s *Strategy) Close() error {
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}

// outcome returns how the result of an execution counts.
func (s *Strategy) outcome(ctx context.Context, value any, err error) judge.Outcome {
	o := judge.Counts(ctx, s.options.Handle, value, err)
	if o == judge.Success && (ctx.Err() != nil || pipeline.IsContextError(err)) {
		return judge.Ignored
	}
	return o
}

// A State is what [Strategy.Describe] returns as the state of a [Limiter] or a [Throttler].
type State struct {
	limiter.Statistics
	// Limit is the present limit; 0 for a Throttler.
	Limit int `json:"limit,omitempty"`
	// RejectionRate is [Throttler.RejectionRate]; 0 for a Limiter.
	RejectionRate float64 `json:"rejection_rate,omitempty"`
}

// String returns the limit or the rejection rate, and the statistics.
func (s State) String() string {
	if s.Limit == 0 {
		return fmt.Sprintf("rejects %.3g, %v", s.RejectionRate, s.Statistics)
	}
	return fmt.Sprintf("limit %d, %v", s.Limit, s.Statistics)
}

// LogValue implements [slog.LogValuer] with [State.String].
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Describe returns a [ratelimit.Description], and the state of the limiter: a [State], or for other limiters what
// [ratelimit.Strategy.Describe] returns. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	options, state = s.Strategy.Describe()
	d := options.(ratelimit.Description)
	switch l := s.Limiter().(type) {
	case *Limiter:
		d.Limits, state = l.Options(), State{Statistics: l.Statistics(), Limit: l.Limit()}
	case *Throttler:
		d.Limits, state = l.Options(), State{Statistics: l.Statistics(), RejectionRate: l.RejectionRate()}
	}
	return d, state
}
