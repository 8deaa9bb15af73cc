package chaos

import (
	"context"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// LatencyOptions are the options of a [Latency].
type LatencyOptions struct {
	Options `yaml:",inline"`
	// Latency is how long to wait; 0 is 30 s, -1 is not at all.
	Latency time.Duration `json:"latency,omitempty" yaml:"latency,omitempty"`
	// LatencyFunc, where set, gives the wait of each execution, in place of Latency;
	// zero or less: nothing is injected.
	LatencyFunc func(ctx context.Context) time.Duration `json:"-" yaml:"-"`
}

// Validate returns every problem in one error, or nil.
func (o *LatencyOptions) Validate() error {
	if o == nil {
		return nil
	}
	var p problems
	p.common(&o.Options)
	if o.Latency < -1 {
		p.add("Latency is %v, must be at least 0, or -1 for none", o.Latency)
	}
	return p.err()
}

// A Latency is a strategy that waits before it runs what comes after it. Make one
// with [NewLatency]; the zero Latency injects nothing. It is safe for concurrent use.
type Latency struct {
	gate
	options LatencyOptions
}

// NewLatency makes a strategy that injects waits. A nil o means the defaults: it is
// off.
func NewLatency(o *LatencyOptions) *Latency {
	s := new(Latency)
	if o != nil {
		s.options = *o
	}
	s.gate = newGate(s.options.Options, "Chaos.Latency", o.Validate())
	s.options.Options = s.common
	if s.options.Latency == 0 {
		s.options.Latency = DefaultLatency
	}
	return s
}

// Options returns the options, with the defaults filled in.
func (s *Latency) Options() LatencyOptions { return s.options }

// Describe says what the strategy is made of: its [LatencyOptions]. It is for
// [pipeline.Pipeline.Describe].
func (s *Latency) Describe() (options, state any) { return s.options, nil }

// Execute runs next, after a wait that ends with the context, as a slow call would.
// It implements [pipeline.Strategy].
func (s *Latency) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.opens(ctx)
	if err != nil {
		return nil, err
	}
	if !inject {
		return next.Run(ctx)
	}
	latency := s.options.Latency
	if s.options.LatencyFunc != nil {
		latency = s.options.LatencyFunc(ctx)
	}
	if latency <= 0 {
		return proceed(ctx, next)
	}
	i := Injection{Latency: latency}
	s.report(ctx, next, EventLatency, i)
	if err := wait(ctx, latency); err != nil {
		return nil, err
	}
	s.call(ctx, next, i)
	return proceed(ctx, next)
}

// wait waits for d and returns nil, or why the context ended meanwhile.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return pipeline.ContextError(ctx)
}
