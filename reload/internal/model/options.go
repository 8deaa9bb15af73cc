package model

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// RateLimiterOptions are the options of a rate_limiter, except a limiter that is written among them.
type RateLimiterOptions struct {
	ratelimit.Options `yaml:",inline"`
	Limiter           string `yaml:"limiter,omitempty"`
	Permits           string `yaml:"permits,omitempty"`
	Handle            string `yaml:"handle,omitempty"`
}

// RetryOptions are the options of a retry.
type RetryOptions struct {
	retry.Options `yaml:",inline"`
	Handle        string `yaml:"handle,omitempty"`
	Budget        string `yaml:"budget,omitempty"`
}

// TimeoutOptions are the options of a timeout.
type TimeoutOptions struct {
	Timeout         time.Duration `yaml:"timeout"`
	timeout.Options `yaml:",inline"`
}

// Validate checks the timeout, which is not part of [timeout.Options].
func (o TimeoutOptions) Validate() error {
	var p validate.Problems
	p.Positive("Timeout", o.Timeout)
	return p.Err("timeout")
}

// PipelineOptions are the options of a pipeline that is embedded.
type PipelineOptions struct {
	Name string `yaml:"name"`
}

// PartitionedOptions are the options of a partitioned limiter, except each.
type PartitionedOptions struct {
	Key                        string `yaml:"key"`
	limiter.PartitionedOptions `yaml:",inline"`
}

// CircuitBreakerOptions are the options of a circuit_breaker.
type CircuitBreakerOptions struct {
	circuitbreaker.Options `yaml:",inline"`
	Handle                 string `yaml:"handle,omitempty"`
	Control                string `yaml:"control,omitempty"`
}

// Validate sets a Control if the file names one. Otherwise, options that leave opening the circuit to the Control would
// be invalid.
func (o CircuitBreakerOptions) Validate() error {
	if o.Control != "" {
		o.Options.Control = new(circuitbreaker.Control)
	}
	return o.Options.Validate()
}

// FallbackOptions are the options of a fallback.
type FallbackOptions struct {
	Action           string `yaml:"action"`
	fallback.Options `yaml:",inline"`
	Handle           string `yaml:"handle,omitempty"`
}

// HedgingOptions are the options of hedging.
type HedgingOptions struct {
	hedge.Options `yaml:",inline"`
	Handle        string `yaml:"handle,omitempty"`
	Budget        string `yaml:"budget,omitempty"`
}

// Validate refuses a delay together with at_once. [hedge.Options] asks for a delay of 0, which a file cannot write.
func (o HedgingOptions) Validate() error {
	var p validate.Problems
	if o.AtOnce && o.Delay != 0 {
		p.Add("Delay", nil, "must be left out with {AtOnce}")
		o.Delay = 0
	}
	p.Include("", o.Options.Validate())
	return p.Err("hedge")
}

// ChaosFaultOptions are the options of a chaos_fault.
type ChaosFaultOptions struct {
	chaos.FaultOptions `yaml:",inline"`
	Error              string `yaml:"error,omitempty"`
}

// ChaosLatencyOptions are the options of a chaos_latency.
type ChaosLatencyOptions struct {
	chaos.LatencyOptions `yaml:",inline"`
}

// ChaosOutcomeOptions are the options of a chaos_outcome.
type ChaosOutcomeOptions struct {
	Outcome              string `yaml:"outcome"`
	chaos.OutcomeOptions `yaml:",inline"`
}

// ChaosBehaviorOptions are the options of a chaos_behavior.
type ChaosBehaviorOptions struct {
	Behavior              string `yaml:"behavior"`
	chaos.BehaviorOptions `yaml:",inline"`
}

// Validate sets a function, because options without one are invalid. The decoder reports a name that is missing.
func (o ChaosOutcomeOptions) Validate() error {
	o.ResultFunc = func(context.Context) (chaos.Result, bool) { return chaos.Result{}, false }
	return o.OutcomeOptions.Validate()
}

// Validate sets a function, because options without one are invalid. The decoder reports a name that is missing.
func (o ChaosBehaviorOptions) Validate() error {
	o.BehaviorOptions.Behavior = func(context.Context) error { return nil }
	return o.BehaviorOptions.Validate()
}

// A Purpose is what a function or value of the program is registered for, in the words of error messages. Names are
// unique for each purpose.
type Purpose string

// The purposes.
const (
	KeyFunction     Purpose = "key function"
	HandleFunction  Purpose = "handle function"
	PermitsFunction Purpose = "permits function"
	FallbackAction  Purpose = "fallback action"
	CircuitControl  Purpose = "circuit control"
	ChaosError      Purpose = "chaos error"
	ChaosOutcome    Purpose = "chaos outcome"
	ChaosBehavior   Purpose = "chaos behavior"
	LimiterStore    Purpose = "store"
)
