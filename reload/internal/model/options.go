package model

import (
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// The top-level fields of a file.
const (
	LimitersField   = "limiters"
	BudgetsField    = "budgets"
	PipelinesField  = "pipelines"
	AllowEmptyField = "allow_empty"
	SchemaField     = "$schema" // the address of the schema, for editors
)

// OwnFields are the top-level fields of a file that has more than sections. After Kinds.OnlySections a file has none of
// them.
var OwnFields = []string{LimitersField, BudgetsField, PipelinesField, AllowEmptyField}

// LimiterField is the field of a rate_limiter that names a shared limiter.
const LimiterField = "limiter"

// IgnoredPrefix begins the names of top-level fields that are ignored: they are a place for anchors.
const IgnoredPrefix = "x-"

// StoreField is the field beside the kind of a limiter, under limiters and in a rate_limiter alike, so that moving a
// limiter into a store adds one line to a file.
const StoreField = "store"

// RateLimiterOptions are the options of a rate_limiter, except a limiter that is written among them.
type RateLimiterOptions struct {
	ratelimit.Options `yaml:",inline"`
	// The name of a limiter under limiters.
	Limiter string `yaml:"limiter,omitempty"`
	// The registered function that returns how many permits an execution takes; 1 unless set.
	Permits string `yaml:"permits,omitempty" reload:"names=permits function"`
	// For an adaptive limiter or a throttler: the registered function that reports what a failure is. Default: every error
	// except a cancellation.
	Handle string `yaml:"handle,omitempty" reload:"names=handle function"`
}

// RetryOptions are the options of a retry.
type RetryOptions struct {
	retry.Options `yaml:",inline"`
	// The registered function that reports what is retried. Default: every error except the end of the execution's own
	// context and errors whose method `Retryable() bool` returns false.
	Handle string `yaml:"handle,omitempty" reload:"names=handle function"`
	// The name of a budget of the file that the retries are taken from; without one their number is not limited.
	Budget string `yaml:"budget,omitempty"`
}

// TimeoutOptions are the options of a timeout.
type TimeoutOptions struct {
	// How long the execution inside the timeout can take; more than 0.
	Timeout         time.Duration `yaml:"timeout" reload:"least=1"`
	timeout.Options `yaml:",inline"`
}

// PipelineOptions are the options of a pipeline that is embedded.
type PipelineOptions struct {
	// The name of another pipeline of the file.
	Name string `yaml:"name"`
}

// PartitionedOptions are the options of a partitioned limiter, except each.
type PartitionedOptions struct {
	// The registered function that returns the key.
	Key                        string `yaml:"key" reload:"names=key function"`
	limiter.PartitionedOptions `yaml:",inline"`
}

// CircuitBreakerOptions are the options of a circuit_breaker.
type CircuitBreakerOptions struct {
	circuitbreaker.Options `yaml:",inline"`
	// The registered function that reports what a failure is. Default: every error except a cancellation and a rejection by
	// a strategy further inside.
	Handle string `yaml:"handle,omitempty" reload:"names=handle function"`
	// The registered control, with which the program opens and closes the circuit.
	Control string `yaml:"control,omitempty" reload:"names=circuit control"`
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
	// The registered action, which returns what replaces a failed outcome.
	Action           string `yaml:"action" reload:"names=fallback action"`
	fallback.Options `yaml:",inline"`
	// The registered function that reports what is replaced. Default: every error except the end of the execution's own
	// context.
	Handle string `yaml:"handle,omitempty" reload:"names=handle function"`
}

// HedgingOptions are the options of hedging.
type HedgingOptions struct {
	hedge.Options `yaml:",inline"`
	// The registered function that reports which outcome does not win. Default: every error except the end of the
	// execution's own context.
	Handle string `yaml:"handle,omitempty" reload:"names=handle function"`
	// The name of a budget of the file that the attempts after the first are taken from; without one their number is not
	// limited.
	Budget string `yaml:"budget,omitempty"`
}

// ChaosOptions are what the chaos strategies have in common.
type ChaosOptions struct {
	chaos.Options `yaml:",inline"`
}

// Validate checks what all chaos options have in common.
func (o ChaosOptions) Validate() error { return (&chaos.FaultOptions{Options: o.Options}).Validate() }

// ChaosFaultOptions are the options of a chaos_fault.
type ChaosFaultOptions struct {
	ChaosOptions `yaml:",inline"`
	// The registered error that is returned; chaos.ErrInjected unless set.
	Error string `yaml:"error,omitempty" reload:"names=chaos error"`
}

// ChaosLatencyOptions are the options of a chaos_latency.
type ChaosLatencyOptions struct {
	chaos.LatencyOptions `yaml:",inline"`
}

// ChaosOutcomeOptions are the options of a chaos_outcome.
type ChaosOutcomeOptions struct {
	// The registered function that returns the outcome.
	Outcome      string `yaml:"outcome" reload:"names=chaos outcome"`
	ChaosOptions `yaml:",inline"`
}

// ChaosBehaviorOptions are the options of a chaos_behavior.
type ChaosBehaviorOptions struct {
	// The registered function that is called before the execution.
	Behavior     string `yaml:"behavior" reload:"names=chaos behavior"`
	ChaosOptions `yaml:",inline"`
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
