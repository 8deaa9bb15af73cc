package circuitbreaker

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// The defaults of [Options].
const (
	defaultFailureRatio      = 0.1
	defaultMinimumThroughput = 100
	defaultSamplingDuration  = 30 * time.Second
	defaultBreakDuration     = 5 * time.Second
	defaultHalfOpenProbes    = 1
)

// Options say when a circuit opens, for how long, and how it closes. The zero Options are the defaults: the circuit opens
// for 5 s if a tenth of at least 100 executions within 30 s has failed, and closes if one probe succeeds.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "CircuitBreaker".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// FailureRatio is the share of failures in the sampling window that opens the circuit, at most 1. The default is
	// 0.1; -1 switches the rule off.
	FailureRatio float64 `json:"failure_ratio,omitempty" yaml:"failure_ratio,omitempty" reload:"off,default=0.1"`
	// MinimumThroughput is how many executions the window must have before FailureRatio applies. The default is 100.
	MinimumThroughput int `json:"minimum_throughput,omitempty" yaml:"minimum_throughput,omitempty" reload:"default=100"`
	// SamplingDuration is the length of the window, which slides in steps of a tenth of it. The default is 30 s.
	SamplingDuration time.Duration `json:"sampling_duration,omitempty" yaml:"sampling_duration,omitempty" reload:"default=30s"`
	// ConsecutiveFailures is the number of failures in a row that opens the circuit. If 0, the rule is off. If both
	// rules are on, either of them opens the circuit.
	ConsecutiveFailures int `json:"consecutive_failures,omitempty" yaml:"consecutive_failures,omitempty"`
	// BreakDuration is how long the circuit stays open, and how long a probe keeps its place. The default is 5 s.
	BreakDuration time.Duration `json:"break_duration,omitempty" yaml:"break_duration,omitempty" reload:"default=5s"`
	// BreakDurationFunc returns the length of a break: for example one that grows with [Transition.HalfOpenAttempts], or
	// the wait that the failure asks for, see [pipeline.RetryAfter]. If it is nil or returns 0 or less, the break is
	// BreakDuration. It is called once for each break, when the circuit has opened, and must not block: until it returns,
	// the break is BreakDuration.
	BreakDurationFunc func(ctx context.Context, t Transition) time.Duration `json:"-" yaml:"-"`
	// HalfOpenProbes is the number of probes that must succeed before the circuit closes, and that can run at once. The
	// default is 1.
	HalfOpenProbes int `json:"half_open_probes,omitempty" yaml:"half_open_probes,omitempty" reload:"default=1"`
	// RetryRejections makes a retry outside wait until the break is over and try again, and while a probe runs for the
	// retry's own delay. By default it returns the [OpenError] at once, because callers that wait for a server that is
	// down pile up.
	RetryRejections bool `json:"retry_rejections,omitempty" yaml:"retry_rejections,omitempty"`
	// Handle reports whether an outcome is a failure. It is called for every outcome, also for successful ones. If
	// nil, every error is a failure except a cancellation and a rejection by a strategy further inside, such as a
	// rate limiter's. See the package comment. [pipeline.HandleResult] converts a function that knows the type of the
	// results.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// Control opens and closes the circuit by hand. Several strategies can share it. If nil, the circuit has one of
	// its own: see [Strategy.Control].
	Control *Control `json:"-" yaml:"-"`

	// The following functions can be nil. The execution that caused a transition calls them, after the transition and
	// the event. The calls for two transitions can overlap, and can come in another order than the transitions. Code
	// that needs the present state calls [Strategy.State].

	// OnOpened is called when the circuit was opened, or isolated.
	OnOpened func(ctx context.Context, t Transition) `json:"-" yaml:"-"`
	// OnClosed is called when the circuit was closed.
	OnClosed func(ctx context.Context, t Transition) `json:"-" yaml:"-"`
	// OnHalfOpened is called when the first probe is let through, before it runs.
	OnHalfOpened func(ctx context.Context, t Transition) `json:"-" yaml:"-"`
}

// withDefaults returns o with the defaults filled in. A nil o stands for the zero Options.
func (o *Options) withDefaults() Options {
	full := *cmp.Or(o, new(Options))
	full.Name = cmp.Or(full.Name, "CircuitBreaker")
	full.FailureRatio = cmp.Or(full.FailureRatio, defaultFailureRatio)
	full.MinimumThroughput = cmp.Or(full.MinimumThroughput, defaultMinimumThroughput)
	full.SamplingDuration = cmp.Or(full.SamplingDuration, defaultSamplingDuration)
	full.BreakDuration = cmp.Or(full.BreakDuration, defaultBreakDuration)
	full.HalfOpenProbes = cmp.Or(full.HalfOpenProbes, defaultHalfOpenProbes)
	return full
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *Options) Validate() error {
	o = cmp.Or(o, new(Options))
	var p validate.Problems
	if r := o.FailureRatio; r != -1 && !(r >= 0 && r <= 1) { // also if it is NaN
		p.Add("FailureRatio", r, "must be more than 0 and at most 1, or -1 for off")
	}
	p.AtLeast("MinimumThroughput", o.MinimumThroughput, 0)
	p.NotNegative("SamplingDuration", o.SamplingDuration)
	p.AtLeast("ConsecutiveFailures", o.ConsecutiveFailures, 0)
	p.NotNegative("BreakDuration", o.BreakDuration)
	p.AtLeast("HalfOpenProbes", o.HalfOpenProbes, 0)
	if o.FailureRatio == -1 && o.ConsecutiveFailures == 0 && o.Control == nil {
		p.Add("FailureRatio", o.FailureRatio,
			"must not be off without {ConsecutiveFailures} or {Control}, because nothing would open the circuit")
	}
	return p.Err("circuitbreaker")
}
