package chaos

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// LatencyOptions are the options of a [Latency].
type LatencyOptions struct {
	Options `yaml:",inline"`
	// Latency is how long to wait. The default is 30 s; -1 is no wait.
	Latency time.Duration `json:"latency,omitempty" yaml:"latency,omitempty"`
	// LatencyFunc returns the wait of an execution. If it is 0 or less, nothing is injected. If LatencyFunc is not nil,
	// Latency is ignored.
	LatencyFunc func(ctx context.Context) time.Duration `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *LatencyOptions) Validate() error {
	if o == nil {
		return nil
	}
	var p validate.Problems
	o.Options.validate(&p)
	if o.Latency < -1 {
		p.Add("Latency", o.Latency, "must be at least 0, or -1 for none")
	}
	return p.Err("chaos")
}

// A Latency is a strategy that waits before it runs what comes after it. Make one with [NewLatency]. The zero Latency
// injects nothing. It is safe for concurrent use.
type Latency struct {
	gate
	options LatencyOptions
}

// NewLatency makes a strategy that injects waits. If o is nil, it has the defaults and is off. If o is invalid, making a
// pipeline of the strategy fails.
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

// Options returns the options with the defaults filled in.
func (s *Latency) Options() LatencyOptions { return s.options }

// Describe returns the [LatencyOptions]. It is for [pipeline.Pipeline.Describe].
func (s *Latency) Describe() (options, state any) { return s.options, nil }

// Execute runs next, after a wait that ends early if the context ends, as a slow call would. It implements
// [pipeline.Strategy].
func (s *Latency) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	inject, err := s.injects(ctx)
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
	clock.Sleep(ctx, latency)
	if ctx.Err() != nil {
		return nil, pipeline.ContextError(ctx)
	}
	s.call(ctx, next, i)
	return proceed(ctx, next)
}
