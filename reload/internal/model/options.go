package model

import (
	"context"
	"errors"
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

type RateLimiterOptions struct {
	ratelimit.Options `yaml:",inline"`
	Permits           string `yaml:"permits,omitempty"`
	Handle            string `yaml:"handle,omitempty"`
}

type RetryOptions struct {
	retry.Options `yaml:",inline"`
	Handle        string `yaml:"handle,omitempty"`
	Budget        string `yaml:"budget,omitempty"`
}

type TimeoutOptions struct {
	Timeout         time.Duration `yaml:"timeout"`
	timeout.Options `yaml:",inline"`
}

// Validate checks what [timeout.New] takes beside its options.
func (o TimeoutOptions) Validate() error {
	var p validate.Problems
	p.Positive("Timeout", o.Timeout)
	return p.Err("timeout")
}

type PipelineOptions struct {
	Name string `yaml:"name"`
}

// partitionedOptions are those of a partitioned limiter but for each.
type PartitionedOptions struct {
	Key                        string `yaml:"key"`
	limiter.PartitionedOptions `yaml:",inline"`
}

type CircuitBreakerOptions struct {
	circuitbreaker.Options `yaml:",inline"`
	Handle                 string `yaml:"handle,omitempty"`
	Control                string `yaml:"control,omitempty"`
}

// Validate takes a control into account that is to be looked up when the circuit
// breaker is made: a circuit may be opened by nothing else.
func (o CircuitBreakerOptions) Validate() error {
	if o.Control != "" {
		o.Options.Control = new(circuitbreaker.Control)
	}
	return o.Options.Validate()
}

type FallbackOptions struct {
	Action           string `yaml:"action"`
	fallback.Options `yaml:",inline"`
	Handle           string `yaml:"handle,omitempty"`
}

type HedgingOptions struct {
	hedge.Options `yaml:",inline"`
	Handle        string `yaml:"handle,omitempty"`
	Budget        string `yaml:"budget,omitempty"`
}

// Validate says of a delay with at_once what a file can do about it, where a delay of 0 cannot be written.
func (o HedgingOptions) Validate() error {
	var p validate.Problems
	if o.AtOnce && o.Delay != 0 {
		p.Add("Delay", nil, "must be left out with {AtOnce}")
		o.Delay = 0
	}
	return errors.Join(p.Err("hedge"), o.Options.Validate())
}

type ChaosFaultOptions struct {
	chaos.FaultOptions `yaml:",inline"`
	Error              string `yaml:"error,omitempty"`
}

type ChaosLatencyOptions struct {
	chaos.LatencyOptions `yaml:",inline"`
}

type ChaosOutcomeOptions struct {
	Outcome              string `yaml:"outcome"`
	chaos.OutcomeOptions `yaml:",inline"`
}

type ChaosBehaviorOptions struct {
	Behavior              string `yaml:"behavior"`
	chaos.BehaviorOptions `yaml:",inline"`
}

// Validate leaves it to the decoder to say that the outcome is missing.
func (o ChaosOutcomeOptions) Validate() error {
	o.ResultFunc = func(context.Context) (chaos.Result, bool) { return chaos.Result{}, false }
	return o.OutcomeOptions.Validate()
}

// Validate leaves it to the decoder to say that the behavior is missing.
func (o ChaosBehaviorOptions) Validate() error {
	o.BehaviorOptions.Behavior = func(context.Context) error { return nil }
	return o.BehaviorOptions.Validate()
}

// A purpose is what a function or value of the program is registered for, in the words of error messages. Two of
// different purposes can have the same name.
type Purpose string

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
